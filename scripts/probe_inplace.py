"""Which kernels of the installed ONNX Runtime write over an input, or alias it? Ask them.

    python -m scripts.probe_inplace             those of the CPU
    python -m scripts.probe_inplace --device 0  those of a CUDA device

Builds a tiny model around each operator, runs it with profiling, and looks at what the node added to ONNX Runtime's
own count of bytes in use. An output that adds nothing lives in an input's memory. If the input is needed again later
and the output still adds nothing, it is an alias; otherwise the kernel may work in place when nobody else needs the
input. On a device it is counted how often the run asks for memory, and how often if the output must have its own.
The tables in `onnxmem/schedule/inplace.py` are this script's output.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from onnxmem.session.planned.trace import record

SHAPE = (2, 16, 8, 8)
F, B, I = np.float32, np.bool_, np.int64  # noqa: E741
MS, NCHWC = "com.microsoft", "com.microsoft.nchwc"

# op, domain, one entry per input: a dtype (a tensor of SHAPE that may be overwritten) or an array (a constant), attrs
Case = tuple[str, str, list[Any], dict[str, Any]]


def channels(value: float = 1.0) -> np.ndarray[Any, Any]:
    return np.full(SHAPE[1], value, F)


def last(value: float = 1.0) -> np.ndarray[Any, Any]:
    return np.full(SHAPE[-1], value, F)


def weights(*shape: int) -> np.ndarray[Any, Any]:
    return np.zeros(shape, F)


def cases() -> list[Case]:
    """Every operator whose output can have the size of an input."""
    # fmt: off
    unary = [
        "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Elu",
        "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "LeakyRelu", "Log",
        "LogSoftmax", "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin",
        "Sinh", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
        "GlobalAveragePool", "Dropout", "MeanVarianceNormalization", "LpNormalization", "Transpose", "Flatten",
    ]
    # fmt: on
    found: list[Case] = [(op, "", [F], {}) for op in unary]
    binary = ["Add", "Sub", "Mul", "Div", "Pow", "Mod", "PRelu", "Max", "Min", "Mean", "Sum"]
    found += [(op, "", [F, F], {"fmod": 1} if op == "Mod" else {}) for op in binary]
    found += [(op, "", [B, B], {}) for op in ("And", "Or", "Xor")]
    found += [(op, "", [I, I], {}) for op in ("Add", "Mul", "Sub", "BitwiseAnd", "Max")]
    found += [
        ("Not", "", [B], {}),
        ("Where", "", [B, F, F], {}),
        ("Cast", "", [F], {"to": 1}),
        ("Cast", "", [F], {"to": 6}),
        ("Clip", "", [F, np.array(0, F), np.array(6, F)], {}),
        ("Reshape", "", [F, np.array([2, 16, 64])], {}),
        ("Squeeze", "", [F, np.array([], I)], {}),
        ("Unsqueeze", "", [F, np.array([0])], {}),
        ("Expand", "", [F, np.array(SHAPE)], {}),
        ("Tile", "", [F, np.ones(4, I)], {}),
        ("Pad", "", [F, np.zeros(8, I)], {}),
        ("Slice", "", [F, np.array([0]), np.array([99])], {}),
        ("Resize", "", [F, np.array([], F), np.ones(4, F)], {}),
        ("Concat", "", [F], {"axis": 0}),
        ("Split", "", [F], {"axis": 0, "num_outputs": 1}),
        ("CumSum", "", [F, np.array(1)], {}),
        ("Trilu", "", [F], {}),
        ("DepthToSpace", "", [F], {"blocksize": 1}),
        ("Gather", "", [F, np.arange(2)], {}),
        ("ScatterND", "", [F, np.array([[0]]), np.ones((1, *SHAPE[1:]), F)], {}),
        ("ScatterElements", "", [F, np.zeros((1, 1, 1, 1), I), np.ones((1, 1, 1, 1), F)], {}),
        ("ReduceSum", "", [F, np.array([0])], {"keepdims": 1, "noop_with_empty_axes": 0}),
        ("BatchNormalization", "", [F, *[channels()] * 4], {}),
        ("InstanceNormalization", "", [F, channels(), channels()], {}),
        ("GroupNormalization", "", [F, channels(), channels()], {"num_groups": 4}),
        ("LayerNormalization", "", [F, last(), last()], {}),
        ("RMSNormalization", "", [F, last()], {}),
        ("LRN", "", [F], {"size": 3}),
        ("MatMul", "", [F, weights(8, 8)], {}),
        ("Conv", "", [F, weights(16, 16, 1, 1)], {}),
        ("MaxPool", "", [F], {"kernel_shape": [1, 1]}),
        ("AveragePool", "", [F], {"kernel_shape": [1, 1]}),
        ("QuantizeLinear", "", [F, np.array(1, F), np.array(0, np.uint8)], {}),
        ("SimplifiedLayerNormalization", "", [F, last()], {}),
        ("Gelu", MS, [F], {}),
        ("FastGelu", MS, [F, last()], {}),
        ("BiasGelu", MS, [F, last()], {}),
        ("QuickGelu", MS, [F], {}),
        ("FusedMatMul", MS, [F, weights(8, 8)], {}),
        ("SkipLayerNormalization", MS, [F, F, last(), last()], {}),
        ("SkipSimplifiedLayerNormalization", MS, [F, F, last()], {}),
        ("FusedConv", MS, [F, weights(16, 16, 1, 1), channels()], {"activation": "Relu"}),
        ("FusedConv", MS, [F, weights(16, 16, 1, 1), channels(), F], {}),
        ("Conv", NCHWC, [F, weights(16, 16, 1, 1), channels()], {}),
        ("Conv", NCHWC, [F, weights(16, 16, 1, 1), channels(), F], {}),
        ("ReorderInput", NCHWC, [F], {}),
        ("ReorderOutput", NCHWC, [F], {"channels": 16}),
        ("MaxPool", NCHWC, [F], {"kernel_shape": [1, 1]}),
        ("ScaledTanh", MS, [F], {}),
        ("ParametricSoftplus", MS, [F], {}),
        ("Affine", MS, [F], {}),
        ("ThresholdedRelu", MS, [F], {"alpha": 1.0}),
        ("BiasSoftmax", MS, [F, F], {"axis": 1, "is_inner_broadcast": 0}),
        ("ExpandDims", MS, [F, np.array(0, np.int32)], {}),
    ]
    return found


def model_around(case: Case, victim: int, needed_later: bool) -> onnx.ModelProto:
    """before → the operator → after, where only input `victim` is an intermediate tensor."""
    op, domain, inputs, attributes = case
    nodes, constants, feeds, names = [], [], {}, []
    for position, spec in enumerate(inputs):
        if not isinstance(spec, type):
            constants.append(numpy_helper.from_array(np.asarray(spec), f"constant{position}"))
            names.append(f"constant{position}")
            continue
        feeds[f"feed{position}"] = helper.np_dtype_to_tensor_dtype(np.dtype(spec))
        kind, read = ("Not", 1) if spec is B else ("Mul", 2)
        if position == victim:
            nodes.append(helper.make_node(kind, [f"feed{position}"] * read, ["victim"], name="before"))
        names.append("victim" if position == victim else f"feed{position}")
    nodes.append(helper.make_node(op, names, ["result"], name="probe", domain=domain, **attributes))
    # Identity would alias: a Concat makes the result a plain intermediate that somebody reads.
    nodes.append(helper.make_node("Concat", ["result", "result"], ["output"], name="after", axis=0))
    if needed_later:
        # Reads the victim only after the probed node ran: its index is computed (0, whatever the size) from the result.
        constants.append(numpy_helper.from_array(np.array(1), "one"))
        nodes.append(helper.make_node("Size", ["result"], ["size"]))
        nodes.append(helper.make_node("Mod", ["size", "one"], ["zero"]))
        nodes.append(helper.make_node("Gather", ["victim", "zero"], ["output2"], name="later"))
    values = [helper.make_tensor_value_info(name, kind, SHAPE) for name, kind in feeds.items()]
    outputs = [helper.make_empty_tensor_value_info(name) for name in ("output", "output2")[: 1 + needed_later]]
    graph = helper.make_graph(nodes, "probe", values, outputs, constants)
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MS, 1), helper.make_opsetid(NCHWC, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def bytes_added(model: onnx.ModelProto, folder: str) -> int:
    """What the probed node added to the bytes in use."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.enable_mem_pattern = options.enable_mem_reuse = False
    options.enable_profiling = True
    options.log_severity_level = 4
    options.profile_file_prefix = f"{folder}/profile"
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": F, "tensor(bool)": B, "tensor(int64)": I}
    session.run(None, {i.name: np.ones(SHAPE, kinds[i.type]) for i in session.get_inputs()})
    events = json.loads(Path(session.end_profiling()).read_text())
    added = [int(e["args"]["mem_in_use_delta"]) for e in events if e["name"] == "probe_kernel_time"]
    if not added:
        raise ValueError("it is a function of other operators")
    return added[0]


def shares_on_device(case: Case, victim: int, needed_later: bool, device: int) -> bool:
    """Whether the output lies in memory of the victim's, there."""
    apart = model_around(case, victim, False)
    if needed_later:  # with operators that the device has, too
        later = [
            helper.make_node("Cast", ["result"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceMax", ["numbers"], ["largest"], keepdims=0),
            helper.make_node("Mul", ["victim", "largest"], ["output2"]),
        ]
        apart.graph.node.extend(later)
        apart.graph.output.append(helper.make_empty_tensor_value_info("output2"))
    asked = apart.SerializeToString()
    apart.graph.output.append(helper.make_empty_tensor_value_info("result"))
    kinds = {TensorProto.FLOAT: F, TensorProto.BOOL: B, TensorProto.INT64: I}
    feeds: dict[str, Any] = {i.name: np.ones(SHAPE, kinds[i.type.tensor_type.elem_type]) for i in apart.graph.input}
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    cuda = [("CUDAExecutionProvider", {"device_id": device}), "CPUExecutionProvider"]
    parts = ort.InferenceSession(asked, options, cuda).get_provider_graph_assignment_info()
    left = [node.name for part in parts if part.ep_name == "CPUExecutionProvider" for node in part.get_nodes()]
    if "probe" in left:
        raise ValueError("the device has no kernel of it")
    return len(record(asked, feeds, options, device=device)) < len(
        record(apart.SerializeToString(), feeds, options, device=device)
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, help="the number of a CUDA device")
    device = parser.parse_args().device
    with tempfile.TemporaryDirectory() as folder:

        def shares(case: Case, position: int, needed_later: bool) -> bool:
            if device is not None:
                return shares_on_device(case, position, needed_later, device)
            return bytes_added(model_around(case, position, needed_later), folder) == 0

        for case in cases():
            op, domain, inputs, attributes = case
            row = []
            for position, spec in enumerate(inputs):
                if not isinstance(spec, type):
                    continue
                try:
                    if shares(case, position, False):
                        alias = spec is F and shares(case, position, True)
                        row.append(f"{'alias' if alias else 'in place'} of input {position}")
                except Exception as error:
                    row.append(f"cannot be asked: {str(error).splitlines()[0][:90]}")
            print(f"{domain + '.' if domain else ''}{op:28s} {attributes or ''} {'; '.join(row) or '-'}")


if __name__ == "__main__":
    main()
