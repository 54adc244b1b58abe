"""What does ONNX Runtime's CPU kernel for a node allocate beside its outputs?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.model.graph import Node
from onnxmem.scratch import (
    attention,
    control_flow,
    convolution,
    einsum,
    elementwise,
    fourier,
    normalization,
    quantized,
    recurrent,
    resizing,
)
from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch, ShapeUnknown
from onnxmem.unknown import Unknown

_FORMULAS: Mapping[str, Callable[[Kernel], Scratch]] = {
    "Conv": convolution.convolution,
    "FusedConv": convolution.convolution,
    "ConvTranspose": convolution.transposed_convolution,
    "ConvTransposeWithDynamicPads": convolution.transposed_convolution,
    "DeformConv": convolution.deformable_convolution,
    "LSTM": recurrent.lstm,
    "DynamicQuantizeLSTM": recurrent.lstm,
    "GRU": recurrent.gru,
    "RNN": recurrent.rnn,
    "QLinearConv": quantized.quantized_convolution,
    "ConvInteger": quantized.integer_convolution,
    "DynamicQuantizeMatMul": quantized.dynamically_quantized_product,
    "QLinearMatMul": quantized.quantized_product,
    "DFT": fourier.fourier_transform,
    "STFT": fourier.short_time_fourier_transform,
    "LRN": normalization.local_response,
    "MeanVarianceNormalization": normalization.mean_variance,
    "LayerNormalization": normalization.layer,
    "SimplifiedLayerNormalization": normalization.layer,
    "RMSNormalization": normalization.layer,
    "SkipLayerNormalization": normalization.skip_layer,
    "SkipSimplifiedLayerNormalization": normalization.skip_layer,
    "Attention": attention.attention,
    "QAttention": attention.quantized_attention,
    "MultiHeadAttention": attention.multi_head,
    "GroupQueryAttention": attention.grouped_query,
    "Softmax": elementwise.softmax,
    "LogSoftmax": elementwise.softmax,
    "Hardmax": elementwise.softmax,
    "QLinearSoftmax": elementwise.softmax,
    "Where": elementwise.where,
    "QLinearWhere": elementwise.where,
    "Max": elementwise.of_many,
    "Min": elementwise.of_many,
    "Sum": elementwise.of_many,
    "Mean": elementwise.of_many,
    "BiasGelu": elementwise.biased_gelu,
    "FastGelu": elementwise.biased_gelu,
    "Resize": resizing.resize,
    "Upsample": resizing.resize,
    "Einsum": einsum.einsum,
    "QGemm": quantized.quantized_affine,
    "QLinearAveragePool": quantized.quantized_average_pool,
    "NhwcMaxPool": quantized.largest_in_bytes,
    "Scan": control_flow.scan,
    "Loop": control_flow.loop,
    "MatMulBnb4": quantized.product_of_four_bits,
    "MatMulNBits": quantized.product_of_few_bits,
}


def may_take(op_type: str, domain: str) -> bool:
    """Is there any node of this operator that takes scratch?"""
    return op_type in _FORMULAS and domain != BLOCKED_DOMAIN


def scratch_of(
    node: Node,
    shapes: Callable[[str], tuple[int, ...] | None],
    dtypes: Callable[[str], str | None],
    constant: Callable[[str], bool],
    threads: int,
    block: int,
    opset: int = 13,
) -> Scratch | Unknown:
    """The buffers a node takes while it runs; `shapes` and `dtypes` are asked about weights, too."""
    formula = _FORMULAS.get(node.op_type)
    if formula is None or node.domain == BLOCKED_DOMAIN:
        return NOTHING
    try:
        return formula(Kernel(node, shapes, dtypes, constant, threads, block, opset))
    except ShapeUnknown as error:
        return Unknown(str(error))


def allocated_shape(node: Node, shape: Sequence[int], block: int) -> tuple[int, ...]:
    """The shape in which an output is allocated: channels in blocks come in whole blocks."""
    if node.domain != BLOCKED_DOMAIN or node.op_type == "ReorderOutput" or len(shape) < 2:
        return tuple(shape)
    return (shape[0], -(-shape[1] // block) * block, *shape[2:])
