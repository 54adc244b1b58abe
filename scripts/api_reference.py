"""Write docs/api.md, one line for each public name: python -m scripts.api_reference"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import onnxmem
from onnxmem.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "api.md"

HEADER = """# The library

Made by `python -m scripts.api_reference` from the code itself: every name of `onnxmem`, with its signature and what it
answers. `make docs` builds the whole reference, with all attributes and methods, into `build/docs`, which opens
offline.
"""


def reference() -> str:
    """All public names by kind."""
    things = {name: getattr(onnxmem, name) for name in onnxmem.__all__}
    functions = {name: thing for name, thing in things.items() if inspect.isfunction(thing)}
    errors = {name: thing for name, thing in things.items() if _is_error(thing)}
    classes = {n: thing for n, thing in things.items() if inspect.isclass(thing) and n not in errors}
    others = {name: thing for name, thing in things.items() if name not in {*functions, *errors, *classes}}
    parts = [HEADER, "\n## Functions\n"]
    parts += [f"\n- `{name}{_signature(thing)}`  \n  {_first_line(thing)}\n" for name, thing in functions.items()]
    for title, group in (("Classes", classes), ("Errors", errors)):
        parts.append(f"\n## {title}\n\n| name | what it is |\n|---|---|\n")
        parts += [f"| `{name}` | {_first_line(thing)} |\n" for name, thing in group.items()]
    parts += ["\n## Values\n\n", *(f"- `{name} = {thing!r}`\n" for name, thing in others.items())]
    return "".join(parts)


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, Exception)


def _first_line(thing: Any) -> str:
    return (inspect.getdoc(thing) or "").partition("\n")[0].replace("|", "\\|")


class _Verbatim:
    """An annotation that prints as it was written."""

    def __init__(self, text: Any) -> None:
        self._text = str(text)

    def __repr__(self) -> str:
        return self._text


def _signature(function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [
        each if each.annotation is each.empty else each.replace(annotation=_Verbatim(each.annotation))
        for each in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=_Verbatim(signature.return_annotation)))


if __name__ == "__main__":
    write_text(PAGE, reference())
