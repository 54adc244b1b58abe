"""The section on a converted model: the files that were written."""

from __future__ import annotations

from pathlib import PurePath

from onnxmem.report.cells import Document, name, size, words
from onnxmem.report.report import Action, Fact, Section, Table
from onnxmem.report.sections.common import model


def section(document: Document) -> Section:
    """`onnxmem.convert/1`."""
    files = document["files"]
    first = words(files[0]["path"], 200) if files else "nothing"
    total = size({"bytes": sum(file["bytes"] for file in files)}, "bytes")
    return Section(
        f"{model(document)}, converted",
        f"{first} holds the model as {words(document['to'], 20)}: {total.text}.",
        facts=(Fact("written", total, ", ".join(words(PurePath(file["path"]).name, 60) for file in files)),),
        actions=(Action("Measure what it takes", command=f"onnxmem measure {first}"),) if files else (),
        tables=(Table("Files", ("file", "size"), tuple((name(f["path"], 200), size(f, "bytes")) for f in files)),),
        source=document,
    )
