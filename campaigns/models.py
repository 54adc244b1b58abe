"""Models in files: `.onnx`, `.ort`, what is fed to them, and what is uploaded to the dashboard."""

from __future__ import annotations

import json
import random
import types
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import ModelProto

import onnxmem
from campaigns import corpus
from campaigns.documents import BYTES
from campaigns.hunt import Target, WrongAnswer
from campaigns.mutations import TEXTS, changed_bytes, changed_model
from campaigns.structures import restructured_model
from onnxmem.app import uploads
from onnxmem.errors import UsageError
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.model.load import all_tensors, parse_proto
from onnxmem.packing.convert import convert

_NAMES = (
    "model.onnx", "MODEL.ONNX", "model.ort", "../model.onnx", "/etc/model.onnx", ".onnx", "..", "", "a" * 300 + ".onnx",
    "\U00020000" * 90 + ".onnx", "a/b\\c.onnx", "con.onnx", "a\x00b.onnx", "model.onnx\n", "model.txt", "-o.onnx",
)  # fmt: skip


@cache
def _corpus() -> list[ModelProto]:
    return corpus.models()


def _content(change: Callable[[ModelProto, random.Random], ModelProto], chance: random.Random) -> bytes:
    model = change(chance.choice(_corpus()), chance)
    try:
        content = model.SerializeToString()
    except ValueError:  # a string that protobuf refuses to write
        content = chance.choice(_corpus()).SerializeToString()
    return changed_bytes(content, chance) if chance.random() < BYTES else content


def _model(change: Callable[[ModelProto, random.Random], ModelProto]) -> Callable[[int, Path], Path]:
    def make(number: int, folder: Path) -> Path:
        path = folder / "model.onnx"
        path.write_bytes(_content(change, random.Random(number)))
        (folder / "weights.bin").write_bytes(bytes(64))
        return path

    return make


def _estimate(path: Path) -> None:
    found = onnxmem.estimate(path, view="raw", processes=False, strategies=("greedy_by_size",), time_limit=5)
    document = json.loads(json.dumps(found.document()))
    str(found)
    if type(found).from_document(document).document() != found.document():
        raise WrongAnswer("an estimate does not survive being written and read")


# ORT format.


@cache
def _ort() -> list[bytes]:
    def write(folder: Path) -> None:
        folder.mkdir()
        for number in (0, 3, 5):
            convert(corpus.saved(f"{number}.onnx", number), "ort", folder / f"{number}.ort")

    return [path.read_bytes() for path in sorted(corpus.kept("ort", write).iterdir())]


def _flatbuffer(number: int, folder: Path) -> Path:
    chance, path = random.Random(number), folder / "model.ort"
    content = bytearray(chance.choice(_ort()))
    if chance.random() < 0.5:  # lengths and places are 32 bits at multiples of four
        for _ in range(chance.choice((1, 2, 5))):
            at = chance.randrange(2, len(content) // 4) * 4
            content[at : at + 4] = chance.choice((0, 1, 4, 2**31 - 1, 2**31, 2**32 - 1, len(content))).to_bytes(
                4, "little"
            )
    else:
        content = bytearray(changed_bytes(bytes(content), chance))
    path.write_bytes(content)
    return path


def _signature(path: Path) -> None:
    signature = read_signature(path)
    if signature.files != (path,):
        raise WrongAnswer("an .ort file is made of others")
    if any(not isinstance(each.name, str) for each in signature.inputs):
        raise WrongAnswer("an input has no name")


# What is fed.


@cache
def _arrays() -> bytes:
    def write(path: Path) -> None:
        with path.open("wb") as file:
            np.savez(file, tokens=np.zeros((1, 4), np.int64), mask=np.zeros((1, 1, 1, 4), np.float32))

    return corpus.kept("feeds.npz", write).read_bytes()


def _archive(number: int, folder: Path) -> Path:
    (folder / "model.onnx").write_bytes(_corpus()[1].SerializeToString())
    path = folder / "feeds.npz"
    path.write_bytes(changed_bytes(_arrays(), random.Random(number)))
    return path


def _feeds(path: Path) -> None:
    make_feeds(read_signature(path.with_name("model.onnx")), Scenario(model=path.with_name("model.onnx"), inputs=path))


# What is uploaded.


def _upload(number: int, folder: Path) -> Path:
    chance, path = random.Random(number), folder / "upload"
    change = chance.choice((changed_model, restructured_model))
    path.write_bytes(chance.choice(_ort()) if chance.random() < 0.1 else _content(change, chance))
    (folder / "name").write_text(json.dumps(chance.choice((*_NAMES, *TEXTS))))
    (folder / "space").mkdir()
    return path


def _keep(path: Path) -> None:
    """As the dashboard does; the look into the file in this process, and not in one of its own."""
    content, folder = path.read_bytes(), path.parent / "space"
    uploaded = types.SimpleNamespace(
        name=json.loads(path.with_name("name").read_text()), size=len(content), getbuffer=lambda: content
    )
    uploads._check = lambda kept: uploads._look(uploads.Task(path=str(kept)))  # type: ignore[assignment]
    try:
        kept = uploads.keep(types.SimpleNamespace(folder=folder), uploaded, 2**20)  # type: ignore[arg-type]
        if folder not in kept.parents or kept.read_bytes() != content:
            raise WrongAnswer(f"an upload went to {kept}")
        kept.unlink()
    finally:
        for each in list(folder.rglob("*"))[::-1]:
            each.rmdir()  # a file that was refused must be gone


onnxruntime.set_default_logger_severity(4)

TARGETS: Mapping[str, Target] = {
    "onnx": Target(_model(changed_model), _estimate),
    "graph": Target(_model(restructured_model), _estimate),
    "ort": Target(_flatbuffer, _signature),
    "feeds": Target(_archive, _feeds),
    "upload": Target(_upload, _keep),
}


def _following(path: Path) -> None:
    """A reader that is wrong: it reads weights wherever a model says that they are."""
    for tensor in all_tensors(parse_proto(path)):
        for entry in tensor.external_data:
            if entry.key == "location" and "\0" not in entry.value and (path.parent / entry.value).is_file():
                (path.parent / entry.value).open("rb").close()


def _trusting(path: Path) -> None:
    """A reader that is wrong: it keeps a file under whatever name it comes with."""
    name = json.loads(path.with_name("name").read_text())
    if not name.isprintable() or len(name) > 200:
        raise UsageError("no name")
    (path.parent / "space" / name).write_bytes(b"") if not name.startswith("/") else None


PLANTED = {"graph": _following, "upload": _trusting}
