"""Output shapes of the operators that only ONNX Runtime has: fused, quantised and re-laid-out ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from onnxmem.model.comparing import maximum
from onnxmem.model.dims import floor_div, total
from onnxmem.model.entries import Undecided
from onnxmem.model.shape_rules import Call, Rule, Shape, broadcast, conv, matmul, matmul_rule, pool, qlinear_conv, same


def _global_pool(call: Call) -> Sequence[Shape]:
    data = call.shape(0)
    ones = [1] * (len(data) - 2)
    return [(data[0], *ones, data[-1]) if call.attributes.get("channels_last") else (*data[:2], *ones)]


def _nhwc_pool(call: Call) -> Sequence[Shape]:
    # Its channels are always last; nothing but its name says so.
    return pool(replace(call, attributes={**call.attributes, "channels_last": 1}))


def _fused_matmul(call: Call) -> Sequence[Shape]:
    left, right = call.shape(0), call.shape(1)
    if call.attributes.get("transBatchA") or call.attributes.get("transBatchB"):
        raise Undecided
    if call.attributes.get("transA"):
        left = (*left[:-2], left[-1], left[-2])
    if call.attributes.get("transB"):
        right = (*right[:-2], right[-1], right[-2])
    return [matmul(left, right)]


def _fused_gemm(call: Call) -> Sequence[Shape]:
    left, right = call.shape(0), call.shape(3 if call.op_type == "QGemm" else 1)
    return [(left[1 if call.attributes.get("transA") else 0], right[0 if call.attributes.get("transB") else 1])]


def _matmul_nbits(call: Call) -> Sequence[Shape]:
    return [(*call.shape(0)[:-1], call.attributes["N"])]


def _skip_layer_norm(call: Call) -> Sequence[Shape]:
    data = call.shape(0)
    statistics = (*data[:-1], 1)
    return [data, statistics, statistics, data][: call.outputs]


def _attention(call: Call) -> Sequence[Shape]:
    batch, sequence = call.shape(0)[:2]
    sizes = call.attributes.get("qkv_hidden_sizes")
    hidden = sizes[2] if sizes else floor_div(call.shape(1)[1], 3)
    return [(batch, sequence, hidden), *[None] * (call.outputs - 1)]


def _multi_head_attention(call: Call) -> Sequence[Shape]:
    query = call.shape(0)
    if len(query) != 3:
        raise Undecided
    heads = call.attributes["num_heads"]
    key, value = (call.shape(place) if call.has(place) else query for place in (1, 2))
    hidden = value[2] if len(value) == 3 else query[2]
    seen = key[1] if len(key) == 3 else key[2]
    total_seen = seen + call.shape(6)[2] if call.has(6) else seen
    sizes = (floor_div(query[2], heads), floor_div(hidden, heads))
    return [(*query[:2], hidden), *((query[0], heads, total_seen, size) for size in sizes)][: call.outputs]


def _group_query_attention(call: Call) -> Sequence[Shape]:
    query = call.shape(0)
    heads, shared = call.attributes["num_heads"], call.attributes["kv_num_heads"]
    size = floor_div(query[2], heads if call.has(1) else heads + 2 * shared)
    try:
        (total_seen,) = call.numbers(6)
        seen = maximum(call.shape(3)[2], total_seen) if call.has(3) else total_seen
    except (Undecided, ValueError):
        seen = None
    state = (query[0], shared, seen, size)
    return [(*query[:2], heads * size), state, state][: call.outputs]


def _embed_layer_norm(call: Call) -> Sequence[Shape]:
    ids, hidden = call.shape(0), call.shape(2)[1]
    return [(*ids, hidden), (ids[0],), (*ids, hidden)][: call.outputs]


def _quantized_lstm(call: Call) -> Sequence[Shape]:
    steps, batch = call.shape(0)[:2]
    hidden, directions = call.attributes["hidden_size"], call.shape(1)[0]
    state = (directions, batch, hidden)
    return [(steps, directions, batch, hidden), state, state][: call.outputs]


def _qlinear_elementwise(call: Call) -> Sequence[Shape]:
    return [broadcast(call.shape(0), call.shape(3))]


def _qlinear_where(call: Call) -> Sequence[Shape]:
    return [broadcast(call.shape(0), call.shape(1), call.shape(4))]


def _qlinear_concat(call: Call) -> Sequence[Shape]:
    parts = [call.shape(i) for i in range(2, len(call.shapes), 3)]
    axis = call.attributes["axis"] % len(parts[0])
    return [(*parts[0][:axis], total(part[axis] for part in parts), *parts[0][axis + 1 :])]


def _reorder_input(call: Call) -> Sequence[Shape]:
    # ONNX Runtime reorders only whole blocks of channels, so their number does not change.
    data = call.shape(0)
    return [(data[0], data[-1], *data[1:-1]) if call.attributes.get("channels_last") else data]


def _reorder_output(call: Call) -> Sequence[Shape]:
    data, channels = call.shape(0), call.attributes["channels"]
    if call.attributes.get("channels_last"):
        return [(data[0], *data[2:], channels)]
    return [(data[0], channels, *data[2:])]


def _nchwc_upsample(call: Call) -> Sequence[Shape]:
    return [tuple(dim * times for dim, times in zip(call.shape(0), call.attributes["scales"], strict=True))]


CONTRIB_RULES: dict[str, Rule] = {
    **dict.fromkeys(["Gelu", "FastGelu", "BiasGelu", "QuickGelu", "RotaryEmbedding"], same),
    **dict.fromkeys(["QLinearSigmoid", "QLinearLeakyRelu"], same),
    **dict.fromkeys(["QLinearSoftmax", "QuantizeLinear", "DequantizeLinear", "BiasAdd", "BiasSoftmax"], same),
    **dict.fromkeys(["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"], _skip_layer_norm),
    **dict.fromkeys(["QLinearAdd", "QLinearMul"], _qlinear_elementwise),
    **dict.fromkeys(["FusedGemm", "QGemm"], _fused_gemm),
    **dict.fromkeys(["DynamicQuantizeMatMul", "MatMulInteger16", "MatMulIntegerToFloat"], matmul_rule),
    **dict.fromkeys(["MaxPool", "AveragePool", "QLinearAveragePool"], pool),
    **dict.fromkeys(["GlobalMaxPool", "GlobalAveragePool", "QLinearGlobalAveragePool"], _global_pool),
    **dict.fromkeys(["Conv", "FusedConv"], conv),
    "QLinearConv": qlinear_conv,
    "NhwcMaxPool": _nhwc_pool,
    "QLinearConcat": _qlinear_concat,
    "QLinearWhere": _qlinear_where,
    "FusedMatMul": _fused_matmul,
    **dict.fromkeys(["MatMulNBits", "MatMulBnb4"], _matmul_nbits),
    **dict.fromkeys(["Attention", "QAttention"], _attention),
    "MultiHeadAttention": _multi_head_attention,
    "GroupQueryAttention": _group_query_attention,
    "EmbedLayerNormalization": _embed_layer_norm,
    "DynamicQuantizeLSTM": _quantized_lstm,
    "ReorderInput": _reorder_input,
    "ReorderOutput": _reorder_output,
    "Upsample": _nchwc_upsample,
}
