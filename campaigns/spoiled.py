"""A copy of the installed package whose allocator lacks a symbol, as if a source file had been left out of its build.

python -m campaigns.spoiled FOLDER
"""

from __future__ import annotations

import re
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path


def spoil(folder: Path) -> str:
    """Make it, and say which symbol nobody has."""
    spec = find_spec("onnxmem")
    assert spec is not None and spec.origin is not None
    shutil.copytree(Path(spec.origin).parent, folder / "onnxmem", ignore=shutil.ignore_patterns("__pycache__"))
    (library,) = (folder / "onnxmem" / "_native").glob("arena.*.so")
    # The first such name in the file is in the table of what the library wants from others.
    content = library.read_bytes()
    name = re.search(rb"(?<=\0)Py[A-Z]\w+(?=\0)", content)
    assert name is not None
    missing = name[0][:-1] + b"_"
    library.write_bytes(content[: name.start()] + missing + content[name.end() :])
    return missing.decode()


if __name__ == "__main__":
    print(spoil(Path(sys.argv[1])))
