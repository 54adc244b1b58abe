"""Say plainly what this machine lacks, before anything is installed. Runs on any Python 3."""

import shutil
import sys
import sysconfig
from pathlib import Path


def missing() -> "list[str]":
    """One line for each thing that is not here."""
    problems = []
    if sys.version_info < (3, 11):
        found = ".".join(map(str, sys.version_info[:3]))
        problems.append(f"Python 3.11 or newer (this is {found}); name another one with: make PYTHON=python3.12 ...")
    try:
        import ensurepip  # noqa: F401, PLC0415
    except ImportError:
        problems.append("the venv module (Debian and Ubuntu: apt-get install python3-venv)")
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        problems.append("a C++ compiler (Debian and Ubuntu: apt-get install g++)")
    if not Path(sysconfig.get_paths()["include"], "Python.h").is_file():
        problems.append("Python's C headers (Debian and Ubuntu: apt-get install python3-dev)")
    return problems


if __name__ == "__main__":
    for problem in missing():
        print(f"onnxmem needs {problem}", file=sys.stderr)
    sys.exit(1 if missing() else 0)
