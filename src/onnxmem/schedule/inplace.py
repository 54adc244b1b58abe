"""Which operators write over an input, or only look at it in another shape: ONNX Runtime's CPU kernels.

Asked of ONNX Runtime 1.31 itself by `scripts/probe_inplace.py`, not taken from its documentation: element-wise
arithmetic such as Add or Exp is *not* done in place, whatever one would expect.
"""

from __future__ import annotations

from typing import Protocol


class Operator(Protocol):
    """Anything that says which operator it is."""

    @property
    def op_type(self) -> str:
        """As in `Relu`."""

    @property
    def domain(self) -> str:
        """Whose operator it is; empty for ONNX's own."""


# The output is the input: always, whoever else reads it.
_ALIASES = {
    ("", "Identity"),
    ("", "Reshape"),
    ("", "Squeeze"),
    ("", "Unsqueeze"),
    ("", "Flatten"),
    ("com.microsoft", "ExpandDims"),
}

_OVERWRITING = (
    *("Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign"),
    *("Tanh", "ThresholdedRelu", "Softmax", "LogSoftmax", "Cast", "Trilu", "ScatterElements"),
)
# The output may take over this input's memory, if nobody else needs it any more and the sizes are equal.
_IN_PLACE = {
    **dict.fromkeys((("", op) for op in _OVERWRITING), 0),
    # The residual that a fused convolution adds to.
    ("com.microsoft", "FusedConv"): 3,
    ("com.microsoft.nchwc", "Conv"): 3,
}


def aliased_input(node: Operator) -> int | None:
    """The input that output 0 is another view of, or None."""
    return 0 if (_domain(node), node.op_type) in _ALIASES else None


def overwritten_input(node: Operator) -> int | None:
    """The input that output 0 may be written over, or None."""
    return _IN_PLACE.get((_domain(node), node.op_type))


def _domain(node: Operator) -> str:
    return "" if node.domain == "ai.onnx" else node.domain
