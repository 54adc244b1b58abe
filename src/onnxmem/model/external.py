"""Weights beside the model: where a tensor's external data lies, and reading it."""

from __future__ import annotations

from os.path import normpath
from pathlib import Path, PurePath

from onnx import TensorProto

from onnxmem.errors import ExternalDataError
from onnxmem.model.dtypes import tensor_bytes


def external_location(tensor: TensorProto, folder: Path) -> tuple[Path, int, int | None]:
    """File, offset and length of a tensor's external data, checked to be there, whole, and in the model's folder.

    In it by name: a link in the folder is the user's own, and may lead anywhere, as in the cache of Hugging Face. What
    the model says must not: it may come from a stranger.
    """
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    name = PurePath(normpath(location)) if location else PurePath("..")
    try:
        path = folder / name
        exists = path.is_file()
    except (OSError, ValueError) as error:  # too long a name, or a null byte in it
        raise ExternalDataError(f"tensor '{tensor.name}' keeps its data in '{location}', which is no file") from error
    if name.is_absolute() or ".." in name.parts:
        raise ExternalDataError(
            f"tensor '{tensor.name}' keeps its data in '{location}', outside the model's folder",
            hint="onnxmem reads external data only from the folder of the model and below",
        )
    if not exists:
        raise ExternalDataError(
            f"the external data file '{location}' of tensor '{tensor.name}' is missing",
            hint=f"put it into '{folder}', beside the model",
        )
    try:
        offset, length = int(entries.get("offset", 0)), int(entries["length"]) if "length" in entries else None
    except ValueError as error:
        raise ExternalDataError(f"tensor '{tensor.name}' has an external offset or length that is no number") from error
    size = path.stat().st_size
    if offset < 0 or (length is not None and length < 0) or offset + (length or 0) > size:
        raise ExternalDataError(
            f"the external data file '{location}' is truncated: tensor '{tensor.name}' ends at byte "
            f"{offset + (length or 0)}, the file at {size}"
        )
    needed = tensor_bytes(tensor.data_type, tensor.dims)
    if needed is not None and length is not None and length != needed:
        raise ExternalDataError(
            f"tensor '{tensor.name}' takes {needed} bytes by its shape, but its external data has {length}"
        )
    if offset + (needed or 0) > size:
        raise ExternalDataError(f"the external data file '{location}' is too short for tensor '{tensor.name}'")
    return path, offset, length


def read_external(tensor: TensorProto, folder: Path, size: int) -> bytes:
    """The first `size` bytes of a tensor's external data."""
    path, offset, _ = external_location(tensor, folder)
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def make_external(tensor: TensorProto, location: str, offset: int, length: int) -> None:
    """Say that the tensor's data are these bytes of a file beside the model."""
    tensor.ClearField("raw_data")
    del tensor.external_data[:]
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
