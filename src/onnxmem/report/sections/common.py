"""What several kinds of results say in the same way: inputs, the machine, tensors, and the next command."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import PurePath

from onnxmem.commands import path_word
from onnxmem.report.cells import Document, name, percent, shape, words
from onnxmem.report.report import Action, Cell, Table
from onnxmem.units import format_count

_INPUTS = 4
# Options of one verb that the next one needs too, so that both are about the same run.
_KEPT = ("--shape", "--dim", "--inputs", "--range")
MEASURED = (*_KEPT, "--device")
"""The same for what can be measured on a GPU, too."""


Show = Callable[[Document, str], Cell]
Columns = Sequence[tuple[str, str, Show]]
"""Heading, key and kind of each column."""


def figures(title: str, first: str, columns: Columns, rows: Iterable[Document]) -> Table:
    """A table of documents: a row each, named by what stands under the key `first`."""
    cells = tuple((name(row[first]), *(show(row, key) for _, key, show in columns)) for row in rows)
    return Table(title, (first, *(heading for heading, _, _ in columns)), cells)


def model(document: Document) -> str:
    """Which model it was about."""
    return words(document.get("model") or document.get("problem") or "a problem", 80)


def command(document: Document, verb: str, *more: str, kept: Sequence[str] = _KEPT) -> str:
    """The next command about the same model, fed in the same way: with those options of this one that are `kept`."""
    given = _words_of(document)
    same = [
        word for k, word in enumerate(given) if word.partition("=")[0] in kept or (k and given[k - 1] in kept)
    ]  # --dim n=2 or --dim=n=2
    return words(shlex.join(["onnxmem", verb, path_word(model_path(document)), *same, *more]), 400)


def model_path(document: Document) -> str:
    """Where the model is, as it was typed: what is printed is run in the same folder."""
    name = str(document.get("model") or document.get("problem") or "MODEL")
    typed = (word for word in _words_of(document) if PurePath(word).name == name)
    return str(next(typed, None) or (document.get("scenario") or {}).get("model") or name)


def typed(document: Document, *options: str) -> str:
    """What was given for an option, by any of its names; empty if it was not."""
    given, found = _words_of(document), ""
    for k, word in enumerate(given):
        option, equals, value = word.partition("=")
        if option in options:
            found = value if equals else "".join(given[k + 1 : k + 2])
    return found


def session_line(path: str, *more: str) -> str:
    """The line of Python that loads a model; `more` are further arguments."""
    return f"onnxmem.InferenceSession({', '.join((json.dumps(words(path, 400), ensure_ascii=False), *more))})"


def _words_of(document: Document) -> list[str]:
    try:
        return shlex.split(str(document.get("command") or ""))
    except ValueError:
        return []


def shapes_text(inputs: Mapping[str, Document | list[int]]) -> str:
    """Names and shapes of inputs: "x 1×3×640×640, ids 1×77"."""
    shapes = ((key, each.get("shape") if isinstance(each, Mapping) else each) for key, each in inputs.items())
    return ", ".join(f"{words(key, 40)} {shape(dims)}" for key, dims in shapes) or "no inputs"


def about_inputs(document: Document) -> list[str]:
    """What was fed or assumed, in sentences."""
    inputs, generated = document.get("inputs") or {}, document.get("generated") or {}
    parts = []
    for key, each in list(inputs.items())[:_INPUTS]:
        facts = each if isinstance(each, Mapping) else {"shape": each}
        dtype = f" {words(facts['dtype'], 20)}" if facts.get("dtype") else ""
        how = f" ({words(generated[key], 60)})" if generated.get(key) else ""
        parts.append(f"{words(key, 40)} {shape(facts.get('shape'))}{dtype}{how}")
    more = f" and {len(inputs) - _INPUTS} more" if len(inputs) > _INPUTS else ""
    lines = [f"Inputs: {', '.join(parts)}{more}."] if parts else []
    return [*lines, *about_assumed((document.get("dims") or {}).get("assumed") or {})]


def about_assumed(assumed: Document) -> list[str]:
    """Which dimensions were left open, and the numbers that were used for them."""
    pairs = ", ".join(f"{words(key, 40)} = {words(value, 20)}" for key, value in assumed.items())
    return [f"Assumed: {pairs}. Set it with --dim or --shape."] if pairs else []


def ask_for_sizes(assumed: Iterable[str]) -> Action:
    """What comes before any run of a model that decides sizes from data: it may refuse those that were assumed."""
    dims = " ".join(f"--dim {words(name, 40)}=N" for name in list(assumed)[:_INPUTS])
    return Action(f"Say which sizes it is really fed before it is run: {dims}")


def about_machine(document: Document, how: str = "Measured with") -> list[str]:
    """Where it was measured, or for which it was predicted."""
    where = document.get("environment") or {}
    if not where:
        return []
    parts = [
        f"ONNX Runtime {words(where.get('onnxruntime', '?'), 20)}",
        f"Python {words(where.get('python', '?'), 20)}",
    ]
    parts += [words(where[key], 80) for key in ("libc", "cpu") if where.get(key)]
    if where.get("cores"):
        parts.append(format_count(int(where["cores"]), "core"))
    if where.get("kernel"):
        parts.append(f"{words(where.get('system', ''), 10).capitalize()} {words(where['kernel'], 40)}")
    lines = [f"{how} {', '.join(parts)}."]
    if where.get("variables"):
        pairs = " ".join(f"{words(k, 40)}={words(v, 60)}" for k, v in where["variables"].items())
        lines.append(f"Environment variables: {pairs}")
    return lines


def of_limit(peak: int | float | None, limit: int | float) -> str:
    """How much of a limit a peak takes."""
    if peak is None or not limit:
        return ""
    # What is resident before the limit is set may be any multiple of it.
    part = "more than 10 times" if peak > 10 * limit else f"{percent({'part': peak / limit}, 'part').text} of"
    return f"the peak is {part} it"
