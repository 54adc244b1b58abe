"""LSTM, GRU and RNN: the gates of all steps at once, and a few rows of state."""

from __future__ import annotations

from onnxmem.scratch.kernel import Kernel, Scratch, taking


class _Sizes:
    """Bytes of the buffers that recurrent kernels have in common."""

    def __init__(self, kernel: Kernel, hidden: int) -> None:
        steps, batch, inputs = kernel.input(0)
        if kernel.attribute("layout", 0):
            steps, batch = batch, steps
        directions: str = kernel.attribute("direction", "forward")
        self.width = kernel.width(0)
        self.reversed = {"forward": [False], "reverse": [True]}.get(directions, [False, True])
        self.rows = steps * batch
        self.batch = batch
        self.inputs = inputs
        self.hidden = hidden
        self.state = self.width * batch * hidden
        """A hidden state per sequence."""
        self.final = self.state * len(self.reversed)
        """What Y_h and Y_c take."""
        self.lengths = [] if kernel.has_input(4) else [4 * batch]
        """The length of each sequence, where it is not given."""

    def gates(self, number: int) -> int:
        """All gates of all steps."""
        return self.width * self.rows * number * self.hidden

    def turned(self) -> list[int]:
        """Input and output in reverse."""
        return [self.width * self.rows * self.inputs, self.width * self.rows * self.hidden]


def lstm(kernel: Kernel) -> Scratch:
    """LSTM and, with bytes beside the floats, DynamicQuantizeLSTM."""
    quantized = kernel.node.op_type == "DynamicQuantizeLSTM"
    # The quantized one has its weights turned: inputs by gates.
    sizes = _Sizes(kernel, kernel.input(2)[1 if quantized else 2])
    row = sizes.width * sizes.hidden
    # Final states nobody asked for are computed all the same.
    taken = [sizes.final for place in (1, 2) if not kernel.has_output(place)]
    last = list(sizes.lengths)
    if quantized:
        last += [max(sizes.rows * sizes.inputs, sizes.batch * sizes.hidden), 4 * sizes.state]
    for backwards in sizes.reversed:
        taken += [row, row, sizes.state, sizes.state, sizes.state, sizes.gates(4)]
        taken += [row] * 4 if kernel.has_input(3) else []
        taken += sizes.turned() if backwards else []
    return taking([*taken, *last * len(sizes.reversed)])


def gru(kernel: Kernel) -> Scratch:
    """GRU."""
    sizes = _Sizes(kernel, kernel.input(2)[2])
    late = bool(kernel.attribute("linear_before_reset", 0))
    biased = kernel.has_input(3)
    states = 2 + late + (3 + late if biased else 0)
    taken = [] if kernel.has_output(1) else [sizes.final]
    for backwards in sizes.reversed:
        taken += [sizes.state] * states + [sizes.gates(3)]
        taken += sizes.turned() if backwards else []
        taken += sizes.lengths
    return taking(taken)


def rnn(kernel: Kernel) -> Scratch:
    """RNN: its directions run one after the other in the same buffer."""
    sizes = _Sizes(kernel, kernel.input(2)[2])
    every_step = [] if kernel.has_output(0) else [sizes.gates(1) * len(sizes.reversed)]
    return taking([sizes.gates(1), *every_step])
