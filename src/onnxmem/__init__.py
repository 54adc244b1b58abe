"""onnxmem: how much memory an ONNX model takes, why, and how to make it take less.

Names are imported when they are first used, so that `import onnxmem` costs next to nothing. Which there are, and where
each comes from, is written once: in `__init__.pyi`, which type checkers read, too.
"""

import importlib
import re
from functools import cache


@cache
def _homes() -> dict[str, str]:
    """The module of each public name."""
    # Not with importlib.resources and ast: they would be two MiB of every process that makes a session.
    stub = str(__spec__.loader.get_data(f"{__file__.removesuffix('.py')}.pyi"), "utf-8")  # type: ignore[union-attr]
    found = {name: home for home, name in re.findall(r"^from ([\w.]+) import \(?\s*(\w+) as", stub, re.MULTILINE)}
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
