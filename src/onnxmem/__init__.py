"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less.

Names are imported when they are first used, so that `import onnxmem` costs next to nothing. Which there are, and where
each comes from, is written once: in `__init__.pyi`, which type checkers read, too.
"""

import importlib
from functools import cache


@cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    import ast  # noqa: PLC0415
    from importlib.resources import files  # noqa: PLC0415

    stub = ast.parse((files(__name__) / "__init__.pyi").read_text(encoding="utf-8"))
    found = {
        alias.name: str(node.module) for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    return dict(sorted(found.items(), key=lambda item: (not item[0].isupper(), item[0])))


def __getattr__(name: str) -> object:
    if name == "__all__":
        return tuple(_homes())
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("onnxmem")
    # Python asks for modules of the package here, too, before it imports them; and tools for all kinds of names.
    if name.startswith("_") or name not in _homes():
        raise AttributeError(f"module 'onnxmem' has no attribute '{name}'")
    value = getattr(importlib.import_module(_homes()[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*_homes(), "__version__"]
