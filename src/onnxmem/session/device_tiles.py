"""A model with fixed shapes → the same for a GPU, in pieces, so that less of it is alive at once.

What is rewritten is the graph that ONNX Runtime would run on the device. On the CPU such graphs give the same bits, and
packages hold them. On a GPU libraries choose their kernels by the sizes they get, so that pieces may be rounded
otherwise: whoever wants that says so.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import onnx
import onnxruntime

from onnxmem.errors import ModelError, UsageError
from onnxmem.folders import temporary_folder
from onnxmem.model.bindings import free_dimensions, input_shapes
from onnxmem.model.load import load_proto
from onnxmem.model.model import Model
from onnxmem.rewriting.rewriting import apply
from onnxmem.rewriting.search import search
from onnxmem.rewriting.static import static_graph
from onnxmem.session.choosing import asks_for_cuda, refuse_fallback
from onnxmem.session.options import silent
from onnxmem.session.packed_graphs import KEEP_CONFIG, KEEP_OPTIONS

HOW = KEEP_OPTIONS, KEEP_CONFIG
"""Settings and entries with which what was rewritten runs as it stands."""
_LARGEST = 2**31 - 2**24
"""What fits into the bytes of a model."""


def tiled_for(model: str | bytes | os.PathLike[str], providers: Any, provider_options: Any = None) -> bytes:
    """The model as these providers run it, in pieces; ModelError, if no part of it needs less in pieces."""
    if isinstance(model, bytes) or Path(model).suffix != ".onnx":
        raise UsageError("tile=True on a GPU is for an .onnx file", hint="give its path")
    path = Path(model)
    free = free_dimensions(input_shapes(load_proto(path)))
    if free:
        raise UsageError(f"tile=True is for fixed input shapes, and '{path.name}' has free ones: {', '.join(free)}")
    with temporary_folder() as folder:
        optimized = folder / "optimized.onnx"
        options = silent(onnxruntime.SessionOptions())
        options.optimized_model_filepath = str(optimized)
        try:
            session = onnxruntime.InferenceSession(str(path), options, providers, provider_options)
        except Exception as error:  # onnxruntime raises a dozen classes of its own
            raise ModelError(f"ONNX Runtime cannot load the model: {str(error).splitlines()[0]}") from error
        if asks_for_cuda(providers):
            refuse_fallback(session.get_providers())
        if optimized.stat().st_size > _LARGEST:
            raise ModelError(f"'{path.name}' is larger than 2 GiB, and cannot be rewritten for a GPU")
        opened = Model.open(optimized)
        shapes = {name: tuple(int(str(dim)) for dim in shape or ()) for name, shape in opened.inputs.items()}
        found = search(static_graph(opened, shapes, optimized=False))
        if not found.parts:
            raise ModelError(f"no part of '{path.name}' needs less in pieces")
        rewritten: bytes = apply(onnx.load(optimized), found).SerializeToString()
    return rewritten
