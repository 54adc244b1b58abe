"""Everything that is read, as strangers might have written it: no crash, hang, traceback or memory above 2 GiB.

    python -m campaigns.files                        a hundred thousand inputs for each reader
    python -m campaigns.files onnx --inputs 2000 --first 700
    python -m campaigns.files --planted              with a reader that is wrong on purpose: it must be found

An input is a good file with a few things changed, or with changed bytes. It may be read, or refused with a sentence;
anything else is a finding, with the number that makes it again. Nothing may be written beside it.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
from onnx import ModelProto

import onnxmem
from campaigns import corpus
from campaigns.hunt import Target, hunt, work
from campaigns.mutations import changed_bytes, changed_json, changed_model, changed_text
from onnxmem.errors import OnnxmemError
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.report.render.to_html import render_html

INPUTS = 100_000
_BYTES = 0.3
"""How many of the inputs have changed bytes, and not changed things."""

_PROBLEM = "id,lower,upper,size,shares\na,0,4,64,\nb,3,6,64,a\nc,5,9,32,\nd,6,12,256,\ne,8,12,32,c\n"
_PLAN = "id,lower,upper,size,offset\na,0,4,64,0\nb,4,6,128,0\nc,5,9,32,128\n"


def _chance(number: int) -> random.Random:
    return random.Random(number)


def _written(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


# Models.


def _model(number: int, folder: Path) -> Path:
    chance = _chance(number)
    model: ModelProto = changed_model(chance.choice(_corpus()), chance)
    try:
        content = model.SerializeToString()
    except ValueError:  # a string that protobuf refuses to write
        content = chance.choice(_corpus()).SerializeToString()
    (folder / "weights.bin").write_bytes(bytes(64))
    return _written(folder, "model.onnx", changed_bytes(content, chance) if chance.random() < _BYTES else content)


@cache
def _corpus() -> list[ModelProto]:
    return corpus.models()


def _estimate(path: Path) -> None:
    found = onnxmem.estimate(path, view="raw", processes=False, strategies=("greedy_by_size",), time_limit=5)
    json.dumps(found.document())
    str(found)


# Tables.


def _table(content: str, name: str) -> Callable[[int, Path], Path]:
    def make(number: int, folder: Path) -> Path:
        chance = _chance(number)
        if chance.random() < _BYTES:
            return _written(folder, name, changed_bytes(content.encode(), chance))
        return _written(folder, name, changed_text(content, chance).encode("utf-8", "surrogatepass"))

    return make


def _problem(path: Path) -> None:
    problem = onnxmem.read_problem(path)
    onnxmem.validate_plan(onnxmem.solve(problem, strategy="greedy_by_size"))


def _plan(path: Path) -> None:
    onnxmem.validate_plan(onnxmem.read_plan(path))


# Results.


@cache
def _results() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(_corpus()[0].SerializeToString())
        question = {"dims": {"batch": 1, "height": 16, "width": 16}}
        made = (
            onnxmem.estimate(path, view="raw", processes=False, time_limit=5, **question),  # type: ignore[arg-type]
            onnxmem.plan(path, view="raw", time_limit=5, **question),  # type: ignore[arg-type]
        )
        return [json.dumps(each.document()) for each in made]


def _result(number: int, folder: Path) -> Path:
    chance = _chance(number)
    content = chance.choice(_results())
    if chance.random() < _BYTES:
        return _written(folder, "result.json", changed_bytes(content.encode(), chance))
    return _written(folder, "result.json", changed_json(content, chance).encode())


def _report(path: Path) -> None:
    render_html(onnxmem.read_report([path]))


# Inputs, and the history.


@cache
def _arrays() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "feeds.npz"
        np.savez(path, tokens=np.zeros((1, 4), np.int64), mask=np.zeros((1, 1, 1, 4), np.float32))
        return path.read_bytes()


def _archive(number: int, folder: Path) -> Path:
    _written(folder, "model.onnx", _corpus()[1].SerializeToString())
    return _written(folder, "feeds.npz", changed_bytes(_arrays(), _chance(number)))


def _feeds(path: Path) -> None:
    make_feeds(read_signature(path.with_name("model.onnx")), Scenario(model=path.with_name("model.onnx"), inputs=path))


@cache
def _database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "history.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("create table other (a, b)")
            connection.commit()
        return path.read_bytes()


def _stored(number: int, folder: Path) -> Path:
    return _written(folder, "history.sqlite", changed_bytes(_database(), _chance(number)))


def _history(path: Path) -> None:
    onnxmem.read_history(path)


TARGETS: Mapping[str, Target] = {
    "onnx": Target(_model, _estimate),
    "problem": Target(_table(_PROBLEM, "problem.csv"), _problem),
    "plan": Target(_table(_PLAN, "plan.csv"), _plan),
    "result": Target(_result, _report),
    "feeds": Target(_archive, _feeds),
    "history": Target(_stored, _history),
}


def _planted(path: Path) -> None:
    """A reader that is wrong: it believes what a file says about its own length."""
    content = path.read_bytes()
    if content[:2] != b"id":
        raise OnnxmemError("not a table")
    content.split(b",")[4 + content[-2] % 8]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.files", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="READER", help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="how many for each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--planted", action="store_true", help="read with a reader that is wrong on purpose")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    targets = {**TARGETS, "planted": Target(TARGETS["problem"].make, _planted)}
    names = ["planted"] if chosen.planted else chosen.targets or list(TARGETS)
    if unknown := [name for name in names if name not in targets]:
        parser.error(f"there is no reader '{unknown[0]}'")
    if chosen.work:
        work(targets[names[0]], *chosen.work)
        return 0
    found = 0
    for name in names:
        started = time.monotonic()
        command = [sys.executable, "-m", "campaigns.files", name, *(["--planted"] * chosen.planted), "--work"]
        outcomes, findings = hunt(command, chosen.inputs, chosen.first)
        seconds = time.monotonic() - started
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.items()))
        print(f"{name}: {chosen.inputs:,} inputs in {seconds:.0f} s: {counts}", flush=True)
        shown: dict[str, int] = {}
        for finding in findings:
            shown.setdefault(finding.what, finding.number)
        for what, number in shown.items():
            print(f"  input {number}: {what}")
        found += len(findings)
    return 0 if (found > 0) == chosen.planted else 1


if __name__ == "__main__":
    sys.exit(main())
