"""Documents from files may hold anything: what a section or a picture does not find in one is an error of the file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from onnxmem.errors import UsageError
from onnxmem.report.cells import words
from onnxmem.report.report import Document


def verb_of(document: Document) -> str:
    """The verb whose result it says it is."""
    return words(document.get("schema", "") or "report", 60).removeprefix("onnxmem.").partition("/")[0]


@contextmanager
def whole(kind: str) -> Iterator[None]:
    """Raise UsageError where a result of that verb lacks something, or has something else there."""
    try:
        yield
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        missing = isinstance(error, KeyError) and error.args
        what = f"it has no '{words(error.args[0], 60)}'" if missing else words(error, 120)
        raise UsageError(
            f"this is no result of 'onnxmem {kind}', although it says so: {what}",
            hint=f"make it again with onnxmem {kind} --json",
        ) from error
