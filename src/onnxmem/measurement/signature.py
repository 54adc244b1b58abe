"""What does a model want to be fed, and which files is it made of? An `.onnx` or `.ort` file is looked at, not run."""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from onnxmem.errors import ModelError
from onnxmem.files import check_file
from onnxmem.model.bindings import input_shapes
from onnxmem.model.dims import Dim
from onnxmem.model.dtypes import dtype_name
from onnxmem.model.external import external_location
from onnxmem.model.load import all_tensors, load_proto
from onnxmem.model.ort_format import ort_reader
from onnxmem.session.package import is_package, open_package

# Operators that hand on the numbers they get, on the way from an input to an embedding table.
_PASS_ON = {"Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose"}


@dataclass(frozen=True)
class Input:
    """One input that a caller feeds."""

    name: str
    dtype: str
    """As people write it: float32, int64, string; empty if it is no tensor."""
    shape: tuple[Dim, ...] | None
    table: int | None = None
    """The rows of the smallest table that its numbers select from: they must be below this."""


@dataclass(frozen=True)
class Signature:
    """The inputs of a model, and its files: itself and its external weights."""

    inputs: tuple[Input, ...]
    files: tuple[Path, ...]

    @property
    def shapes(self) -> dict[str, tuple[Dim, ...] | None]:
        """The inputs' shapes, with free dimensions as symbols."""
        return {value.name: value.shape for value in self.inputs}

    @property
    def file_size(self) -> int:
        """All files together."""
        return sum(file.stat().st_size for file in self.files)


def read_signature(path: Path) -> Signature:
    """Look into a model file, or into the one of a package."""
    if is_package(path):
        package = open_package(path)
        return replace(read_signature(package.model), files=package.files)
    check_file(path)
    if _is_ort(path):
        return Signature(_inputs(_ort_inputs(path)), (path,))
    proto = load_proto(path)
    tensors = (tensor for tensor in all_tensors(proto) if tensor.data_location == TensorProto.EXTERNAL)
    files = dict.fromkeys(external_location(tensor, path.parent)[0] for tensor in tensors)
    return Signature(_inputs(proto), (path, *files))


def _inputs(proto: ModelProto) -> tuple[Input, ...]:
    shapes, tables = input_shapes(proto), dict(_tables(proto))
    declared = {value.name: value for value in proto.graph.input}
    return tuple(Input(name, _dtype(declared[name]), shape, tables.get(name)) for name, shape in shapes.items())


def _dtype(value: ValueInfoProto) -> str:
    tensor = value.type.WhichOneof("value") == "tensor_type"
    return dtype_name(value.type.tensor_type.elem_type) if tensor else ""


def _tables(proto: ModelProto) -> Iterator[tuple[str, int]]:
    """Inputs whose numbers are indices into a constant, and how many rows it has: Gather's first dimension."""
    rows: Mapping[str, tuple[int, ...]] = {tensor.name: tuple(tensor.dims) for tensor in proto.graph.initializer}
    origin = {value.name: value.name for value in proto.graph.input}
    smallest: dict[str, int] = {}
    for node in proto.graph.node:
        # Nobody has checked the model yet: a node may have fewer inputs than its operator wants.
        if node.op_type in _PASS_ON and node.input and node.input[0] in origin:
            origin[node.output[0]] = origin[node.input[0]]
        if node.op_type == "Gather" and len(node.input) > 1 and node.input[1] in origin and node.input[0] in rows:
            axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
            name, shape = origin[node.input[1]], rows[node.input[0]]
            if -len(shape) <= axis < len(shape):
                smallest[name] = min(shape[axis], smallest.get(name, shape[axis]))
    yield from smallest.items()


def _is_ort(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(8)[4:] == b"ORTM"


def _ort_inputs(path: Path) -> ModelProto:
    """The inputs of an ORT-format file as a model of nothing else. The file is mapped, and only its ends are read."""
    session = ort_reader("InferenceSession")
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
            content = session.GetRootAsInferenceSession(mapped, 0)
            return _proto_of(content.Model().Graph())
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise ModelError(f"'{path}' is not a model in ORT format, or it is truncated") from error
    except Exception as error:
        # struct.error, and whatever else reading a damaged flatbuffer comes to.
        raise ModelError(f"'{path}' is not a model in ORT format, or it is truncated: {error}") from error


def _proto_of(graph: Any) -> ModelProto:
    stored = {graph.Initializers(k).Name() for k in range(graph.InitializersLength())}
    names = [graph.Inputs(k) for k in range(graph.InputsLength())]
    args = {graph.NodeArgs(k).Name(): graph.NodeArgs(k) for k in range(graph.NodeArgsLength())}
    proto = ModelProto()
    for name in names:
        if name not in stored:
            proto.graph.input.append(_value(name.decode(), args[name].Type()))
    return proto


def _value(name: str, kind: Any) -> ValueInfoProto:
    dimension_kind = ort_reader("DimensionValueType")
    if kind.ValueType() != ort_reader("TypeInfoValue").tensor_type:
        return ValueInfoProto(name=name)
    tensor = ort_reader("TensorTypeAndShape")()
    tensor.Init(kind.Value().Bytes, kind.Value().Pos)
    shape = tensor.Shape()
    if shape is None:
        return helper.make_tensor_value_info(name, tensor.ElemType(), None)
    dims: list[int | str | None] = []
    for position in range(shape.DimLength()):
        dim = shape.Dim(position).Value()
        if dim is None or dim.DimType() == dimension_kind.UNKNOWN:
            dims.append(None)
        elif dim.DimType() == dimension_kind.VALUE:
            dims.append(dim.DimValue())
        else:
            dims.append(dim.DimParam().decode())
    return helper.make_tensor_value_info(name, tensor.ElemType(), dims)
