"""Which operators write over an input, or only look at it in another shape: ONNX Runtime's kernels.

Asked of ONNX Runtime 1.31 itself by `scripts/probe_inplace.py`, on the CPU and on a CUDA device, not taken from its
documentation: element-wise arithmetic such as Add or Exp is *not* done in place, whatever one would expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol


class Operator(Protocol):
    """Anything that says which operator it is."""

    @property
    def op_type(self) -> str:
        """As in `Relu`."""

    @property
    def domain(self) -> str:
        """Whose operator it is; empty for ONNX's own."""


class _Kernels(NamedTuple):
    aliases: frozenset[tuple[str, str]]
    """The output is the input: always, whoever else reads it."""
    in_place: Mapping[tuple[str, str], int]
    """The output may take over this input's memory, if nobody else needs it any more and the sizes are equal."""


_VIEWS = frozenset(("", op) for op in ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"))
_MICROSOFT = "com.microsoft"

_OVERWRITING = (
    *("Celu", "Clip", "Elu", "HardSigmoid", "LeakyRelu", "Relu", "Selu", "Shrink", "Sigmoid", "Softplus", "Softsign"),
    *("Tanh", "ThresholdedRelu", "Softmax", "LogSoftmax", "Cast", "Trilu", "ScatterElements"),
)
_ON_CPU = _Kernels(
    _VIEWS | {(_MICROSOFT, "ExpandDims")},
    {
        **dict.fromkeys((("", op) for op in _OVERWRITING), 0),
        # The residual that a fused convolution adds to.
        (_MICROSOFT, "FusedConv"): 3,
        ("com.microsoft.nchwc", "Conv"): 3,
    },
)
_OVERWRITING_ON_CUDA = (
    *("Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Shrink", "Sigmoid", "Softplus", "Softsign", "Tanh"),
    *("Trilu", "ScatterND"),
)
_ON_CUDA = _Kernels(
    _VIEWS,
    {
        **dict.fromkeys((("", op) for op in _OVERWRITING_ON_CUDA), 0),
        **dict.fromkeys(((_MICROSOFT, op) for op in ("Gelu", "QuickGelu")), 0),
    },
)


def aliased_input(node: Operator, *, on_cuda: bool = False) -> int | None:
    """The input that output 0 is another view of, or None."""
    return 0 if (_domain(node), node.op_type) in (_ON_CUDA if on_cuda else _ON_CPU).aliases else None


def overwritten_input(node: Operator, *, on_cuda: bool = False) -> int | None:
    """The input that output 0 may be written over, or None."""
    return (_ON_CUDA if on_cuda else _ON_CPU).in_place.get((_domain(node), node.op_type))


def _domain(node: Operator) -> str:
    return "" if node.domain == "ai.onnx" else node.domain
