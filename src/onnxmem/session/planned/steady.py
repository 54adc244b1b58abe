"""Up to where do a run's calls say which node they belong to? Where the input's shapes alone decide them.

A plan knows a buffer by the number of its allocation. A run that follows it is compared call by call, but a call says
no more than a size. Were a call left out, and the next one of the same size, what follows would be taken for something
else; and where two buffers share a place, the outputs would be wrong before anything is noticed. Within a session the
nodes and their order never change, so this takes a node that makes another number of calls than it did. There are

- nodes that always make the same calls for the same shapes of their inputs (STEADY);
- nodes whose output's shape is a *value* (BY_VALUE), such as Expand and Slice. Mostly it comes from a constant or
  from the shape of something; from data, it may be another one each time. Another size is noticed at that very call.
  Only an empty output is not asked for: then a call is missing, and nothing ever makes up for it;
- all others: branches, loops, sequences, whatever looks for values (NonZero, Unique …), random numbers, attention over
  a cache, operators of other libraries. Nothing is known of them, so they are not in either list.

So if a run has none of the last kind, one that makes all the recorded calls and no others is the recorded one; one
that does not is not to be trusted, and is done again without sharing (`Trust.ALL`). If it has any, nothing is shared
from the first node on that is not steady, and what comes later does not matter (`Trust.PREFIX`).

The same for another shape: shapes may decide how many scratch buffers a kernel takes. The pairs of one shape are taken
over by another only if the whole sequence is the same: each call an allocation where the other has one, or a free of
the buffer with the same number. A scratch buffer more in one node and one less in another would have to leave that as
it is; but a scratch buffer ends within its node, and what a node makes only after it.
"""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.session.planned.pairs import Trust
from onnxmem.session.planned.profile import NodeCalls

STEADY = frozenset(
    """
    Abs Acos Acosh Add And ArgMax ArgMin Asin Asinh Atan Atanh AveragePool BatchNormalization BitShift BitwiseAnd
    BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Celu Clip Concat Conv ConvInteger ConvTranspose Cos Cosh CumSum
    DepthToSpace DequantizeLinear Div DynamicQuantizeLinear Elu Equal Erf Exp EyeLike Flatten Floor Gather
    GatherElements GatherND Gelu Gemm GlobalAveragePool GlobalMaxPool Greater GreaterOrEqual GridSample
    GroupNormalization HardSigmoid HardSwish Hardmax Identity InstanceNormalization IsInf IsNaN LRN LayerNormalization
    LeakyRelu Less LessOrEqual Log LogSoftmax LpNormalization LpPool MatMul MatMulInteger Max MaxPool Mean
    MeanVarianceNormalization Min Mish Mod Mul Neg Not Or PRelu Pow QLinearConv QLinearMatMul QuantizeLinear
    RMSNormalization Reciprocal ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin
    ReduceProd ReduceSum ReduceSumSquare Relu Round ScatterElements ScatterND Selu Shape Shrink Sigmoid Sign Sin Sinh
    Size Softmax Softplus Softsign SpaceToDepth Sqrt Squeeze Sub Sum Tan Tanh ThresholdedRelu Transpose Trilu Unsqueeze
    Where Xor
    BiasGelu BiasSoftmax DynamicQuantizeMatMul EmbedLayerNormalization FastGelu FusedConv FusedGemm FusedMatMul
    MatMulIntegerToFloat MatMulNBits QGemm QLinearAdd QLinearAveragePool QLinearConcat QLinearGlobalAveragePool
    QLinearLeakyRelu QLinearMul QLinearSigmoid QLinearSoftmax QuickGelu ReorderInput ReorderOutput
    SimplifiedLayerNormalization SkipLayerNormalization SkipSimplifiedLayerNormalization
    """.split()  # noqa: SIM905  a list of so many names would be a page
)
BY_VALUE = {
    "ConstantOfShape": 0, "Range": 0, "Expand": 1, "OneHot": 1, "Pad": 1, "Reshape": 1, "Resize": 1, "Slice": 1,
    "Split": 1, "Tile": 1, "TopK": 1, "Upsample": 1,
}  # fmt: skip
"""By operator, the first of its inputs whose values decide what it makes."""


def steady_part(nodes: Sequence[NodeCalls]) -> tuple[Sequence[NodeCalls], Trust]:
    """The nodes that may share, and what a run must do to be trusted."""
    if all(node.op in STEADY or node.op in BY_VALUE for node in nodes):
        return nodes, Trust.ALL
    stop = min(node.begin for node in nodes if not _is_steady(node))
    # By calls, not by position: what is inside a loop comes before it in a profile.
    return [node for node in nodes if node.end <= stop], Trust.PREFIX


def _is_steady(node: NodeCalls) -> bool:
    """Whether the shapes of its inputs, and constants, decide its calls."""
    if node.op not in BY_VALUE:
        return node.op in STEADY
    first = BY_VALUE[node.op]
    data, deciding = (sum(max(value.bytes, 0) for value in part) for part in (node.inputs[:first], node.inputs[first:]))
    # Nothing says which of the inputs are constants, only how many bytes of them.
    return node.constant_bytes == deciding and data != deciding
