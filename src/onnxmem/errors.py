"""What can go wrong, and what the user can do about it.

    OnnxmemError            exit 3
    ├── UsageError          exit 2   the request itself is wrong: an unknown name, a bad number
    ├── BudgetExceeded      exit 1   the answer is known and it is "does not fit"
    ├── ModelError          exit 3   the model file, or what it contains
    │   ├── ExternalDataError        … its external weights
    │   ├── ImpossibleShapes         … inputs of sizes that it cannot take
    │   └── OutOfMemory              … what it takes, and the process may not have; a MemoryError, too
    ├── PlanError           exit 3   a placement problem or plan that cannot be right
    ├── RuntimeUnsupported  exit 3   this ONNX Runtime, system or installation cannot do it
    │   └── MissingDependency  exit 2  … because an optional package is not installed
    └── SessionError        exit 3   a session that cannot be used; a RuntimeError, too
        ├── SessionClosed            … because it was closed or released
        └── SessionLost              … because its process died

Every error is one sentence; `hint` says what to do next. Only `onnxmem.cli.main` prints them.
"""

from __future__ import annotations

import importlib.util


class OnnxmemError(Exception):
    """Base of all errors that onnxmem raises on purpose."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(readable(message))
        self.hint = readable(hint)


def readable(text: str) -> str:
    """One line: names come from files, and may hold what would break a line, a terminal or the reading direction."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def excerpt(value: object, room: int) -> str:
    """The beginning of a value, in quotes, for an error about it."""
    try:
        text = str(value)
    except (ValueError, RecursionError):  # of more digits, or deeper, than Python writes
        text = "…"
    return repr(text if len(text) < room else f"{text[:room]}…")


class UsageError(OnnxmemError):
    """The request cannot be carried out as it was written."""

    exit_code = 2


class BudgetExceeded(OnnxmemError):
    """The answer is known: it does not fit."""

    exit_code = 1


class ModelError(OnnxmemError):
    """The model cannot be read or makes no sense."""


class ExternalDataError(ModelError):
    """The model's external weights are missing, short, or outside its folder."""


class ImpossibleShapes(ModelError):
    """The model cannot run with inputs of these shapes."""


class OutOfMemory(ModelError, MemoryError):
    """The process may not have the memory that the model takes."""


class PlanError(OnnxmemError):
    """A placement problem or a plan that cannot be right."""


class RuntimeUnsupported(OnnxmemError):
    """The installed ONNX Runtime, the system or the installation cannot do what was asked."""


class SessionError(OnnxmemError, RuntimeError):
    """A session that cannot be used."""


class SessionClosed(SessionError):
    """The session was closed or released before."""


class SessionLost(SessionError):
    """The process that held the session died, and the call with it."""


class MissingDependency(RuntimeUnsupported):
    """What was asked for needs an optional package that is not installed."""

    exit_code = 2


EXTRAS = {
    "app": {
        "altair": "altair",
        "jinja2": "jinja2",
        "numpy": "numpy",
        "streamlit": "streamlit",
        "vl_convert": "vl-convert-python",
    },
    "cluster": {"ray": "ray"},
    "cuda": {"pynvml": "nvidia-ml-py"},
    "report": {"altair": "altair", "jinja2": "jinja2", "vl_convert": "vl-convert-python"},
    "solvers": {"ortools": "ortools"},
    "torch": {"onnxscript": "onnxscript", "safetensors": "safetensors", "torch": "torch"},
}
"""The modules of each optional dependency, and the packages they come in, as in pyproject.toml."""


def missing_extra(package: str, extra: str) -> MissingDependency:
    """The error for a feature whose optional dependency is not installed."""
    # By package: `pip install onnxmem[report]` would look for onnxmem itself, which a checkout did not come from.
    packages = " ".join(EXTRAS[extra].values())
    return MissingDependency(
        f"this needs the package '{package}', which is not installed", hint=f"pip install {packages}"
    )


def check_extra(extra: str) -> None:
    """Raise MissingDependency unless all packages of an optional dependency are there; asked before long work."""
    for module, package in EXTRAS[extra].items():
        try:
            found = importlib.util.find_spec(module)
        except (ImportError, ValueError):
            found = None
        if found is None:
            raise missing_extra(package, extra)
