"""Which kernels may write over an input? Those whose source promises it, and that do so here: both must say yes.

`PROMISED` lists operators whose routine, as ONNX Runtime's source has it, reads an element of the input before it
writes the same element of the output and never again after; or, for the norms, reads a whole row or channel before it
writes it. It is no more than the list of those worth asking. The kernels themselves are asked on the processor that is
there, with the session's number of threads: a tiny model runs with the output beside the input and over it, and the
outputs must be the same, bit by bit. What was found is kept for the process and in a file for the next one.

Gelu, BiasGelu and QuickGelu have two routines each: one goes over the data once, another writes an intermediate result
into the output and then reads the input again. Which one is used is decided by what the processor can do, when the
process starts. The second one gives other bits for any data and any length, so that asking at all lengths around
vectors and blocks tells which one is here. QuickGelu has its one pass only for a factor of 1 (x·sigmoid(x)), and a
profile does not have the factor: the model's file must say so (`source.py`). So it must that no Gelu is approximated
by tanh, which takes two passes on every processor.

Not on the list although some of them pass here: FastGelu; 1x1 convolutions (luck of blocking); Sum, Mean, Max and Min
of more than two (old kernels write the output before they have read the third); Slice, Pad, Tile and Expand (a copy
onto itself is undefined, and a reversing Slice is of equal size); Softmax and others that ONNX Runtime itself puts into
their input.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress

from onnxmem.session.forked import renew_in_children
from onnxmem.session.planned.answers import read_answers, write_answers
from onnxmem.session.planned.pairs import Question
from onnxmem.session.planned.profile import NodeCalls, Value

_BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Sum", "Mean", "PRelu", "Mod", "And", "Or", "Xor")
_UNARY = (
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sqrt", "Reciprocal", "Exp", "Log", "Erf", "Sign", "Sin", "Cos", "Tan",
    "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Not",
)  # fmt: skip
_BY_ROUTINE = ("Gelu", "QuickGelu")
_BY_CHANNEL = {"BatchNormalization": 5, "InstanceNormalization": 3}
_BY_ROW = ("LayerNormalization", "SimplifiedLayerNormalization", "RMSNormalization")
_WITH_BIAS = "BiasGelu"
_BY_ROW_OF_TWO = ("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
PROMISED: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(_BINARY, (0, 1)),
    "PRelu": (0,),
    "Where": (1, 2),
    **dict.fromkeys([*_UNARY, *_BY_ROUTINE, _WITH_BIAS], (0,)),
    **dict.fromkeys([*_BY_CHANNEL, *_BY_ROW], (0,)),
    **dict.fromkeys(_BY_ROW_OF_TWO, (0, 1)),
}
"""By operator, which of its inputs may lie where its output does, if they are of the output's type and size."""


def question(node: NodeCalls) -> Question | None:
    """What to ask about a node; None if nothing is promised of it."""
    if node.op not in PROMISED or len(node.outputs) != 1:
        return None
    made = node.outputs[0]
    if node.op in _BY_CHANNEL:
        forms = ("channels",) * (len(node.inputs) == _BY_CHANNEL[node.op])
    elif node.op in (*_BY_ROW, *_BY_ROW_OF_TWO, _WITH_BIAS):
        forms = tuple("full" if value.shape == made.shape else "row" for value in node.inputs)
        if not forms or any(value.shape != made.shape[-1:] for value in node.inputs if value.shape != made.shape):
            return None
    else:
        most = 3 if node.op == "Where" else 2 if node.op in _BINARY else 1
        forms = _forms(node.inputs, made) if len(node.inputs) == most else ()
    return Question(node.op, made.dtype, forms) if forms and made.bytes > 0 else None


def _forms(inputs: Sequence[Value], made: Value) -> tuple[str, ...]:
    rank = len(made.shape)
    columns: list[tuple[bool, ...]] = []
    padded = [(1,) * (rank - len(value.shape)) + value.shape for value in inputs]
    for axis, dim in enumerate(made.shape):
        column = tuple(shape[axis] == dim for shape in padded)
        if dim != 1 and column != (columns[-1] if columns else None):
            columns.append(column)
    columns = columns or [(True,) * len(inputs)]
    return tuple("".join("01"[column[k]] for column in columns) for k in range(len(inputs)))


class Rules:
    """What kernels answered, for a number of threads. `told` are answers from a file, `asked` those that are new."""

    def __init__(self, told: Mapping[str, Sequence[int]] | None = None) -> None:
        self.told: dict[str, Sequence[int]] = dict(told or {})
        self.asked: dict[str, Sequence[int]] = {}
        self.begin_anew()
        renew_in_children(self)

    def begin_anew(self) -> None:
        """Another thread may have been asking when this process was forked."""
        self._lock = threading.RLock()  # reentrant, as a handler of signals may come in between

    def allow(self, put: Question, positions: Sequence[int], threads: int) -> bool:
        """Whether a kernel may write its output over any of these inputs."""
        promised = PROMISED.get(put.op, ())
        if not all(position in promised for position in positions):
            return False
        key = f"{threads} {put.key}"
        with self._lock:
            found = self.told.get(key)
            if found is None:
                found = self.told[key] = self.asked[key] = _answer(put, threads)
        return all(position in found for position in positions)

    def keep(self) -> None:
        """Write down what is new, for the next process."""
        with self._lock:  # other threads may be asking
            asked, self.asked = self.asked, {}
        if asked:
            write_answers(sorted(PROMISED.items()), asked)


def _answer(put: Question, threads: int) -> list[int]:
    """Ask; nothing is allowed if the kernel cannot be asked."""
    from onnxmem.session.planned import asking  # noqa: PLC0415  most processes find the answers in the file

    with suppress(Exception):  # whatever ONNX Runtime raises: this is not worth a failed run
        return asking.ask(put, threads)
    return []


_state: dict[str, Rules] = {}


def known_rules() -> Rules:
    """This process's, with what earlier ones found out."""
    if "rules" not in _state:
        _state.setdefault("rules", Rules(read_answers(sorted(PROMISED.items()))))
    return _state["rules"]
