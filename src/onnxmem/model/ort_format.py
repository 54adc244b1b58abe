"""ONNX Runtime's own readers of its ORT format: flatbuffers."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from typing import Any

from onnxmem.errors import RuntimeUnsupported

_PACKAGE = "ort_flatbuffers_py"


def ort_reader(name: str) -> Any:
    """The class of that name.

    Not by way of `onnxruntime.tools`, where it lies: that imports PyTorch if there is one, which takes two seconds and
    more memory than most models.
    """
    try:
        if _PACKAGE not in sys.modules:
            _load_package()
        return getattr(importlib.import_module(f"{_PACKAGE}.fbs.{name}"), name)
    except (ImportError, OSError, AttributeError) as error:
        raise RuntimeUnsupported(f"this ONNX Runtime cannot read its own ORT format: {error}") from error


def _load_package() -> None:
    import onnxruntime  # noqa: PLC0415

    folder = Path(onnxruntime.__file__).parent / "tools" / "ort_format_model" / _PACKAGE
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None  # as for any path
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    sys.modules[_PACKAGE] = package
