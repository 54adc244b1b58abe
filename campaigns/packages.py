"""Packages and plans: opened, run, and compared with what they computed before; or refused.

What a package computes is whatever its author put there. But what its manifest and plans say must change nothing about
the outputs: a plan that lies is refused, or does not matter.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from onnx import ModelProto, helper, numpy_helper, save_model

import onnxmem
from campaigns import corpus
from campaigns.documents import BYTES
from campaigns.hunt import OUTSIDE, Target, WrongAnswer
from campaigns.mutations import NUMBERS, changed_bytes, changed_json, changed_model
from onnxmem.errors import ModelError
from onnxmem.measurement.signature import read_signature
from onnxmem.model.load import all_tensors
from onnxmem.packing.pack import pack
from onnxmem.session.package import MANIFEST, PLANS, WEIGHTS, Manifest, sign, verify_package
from onnxmem.session.planned import cache as plan_cache
from onnxmem.session.planned import kept
from onnxmem.session.planned.kept import KeptPlans
from onnxmem.session.planned.placing import Placement
from onnxmem.session.planned.run_key import RunKey
from onnxmem.session.stored_files import hash_file

# Settings cannot be taken back from a caller's options but by others, and of each ONNX Runtime warns.
onnxruntime.set_default_logger_severity(3)
_UNLISTED = "unlisted.bin"
_SIDE, _CHANNELS = 48, 16
"""Less, and tiles would not take less memory."""
_SHAPE = (1, 3, _SIDE, _SIDE)
_FEEDS = {"x": np.random.default_rng(0).random(_SHAPE, np.float32)}
_NAMES = (
    f"../../{OUTSIDE}",
    f"./../../{OUTSIDE}",
    f"../../in/../{OUTSIDE}",
    "/etc/passwd",
    MANIFEST,
    PLANS,
    WEIGHTS,
    "model.onnx",
    ".",
    "..",
    "",
    "a/b",
    "a\x00b",
)


def _network(path: Path) -> None:
    random_numbers, nodes, weights, name, channels = np.random.default_rng(0), [], [], "x", 3
    for number, stride in enumerate((1, 1, 2)):
        array = random_numbers.standard_normal((_CHANNELS, channels, 3, 3), np.float32) / 8
        weights.append(numpy_helper.from_array(array, f"w{number}"))
        inputs, pads = [name, f"w{number}"], [1, 1, 1, 1]
        nodes.append(helper.make_node("Conv", inputs, [f"c{number}"], pads=pads, strides=[stride, stride]))
        nodes.append(helper.make_node("Sigmoid", [f"c{number}"], [f"r{number}"]))
        name, channels = f"r{number}", _CHANNELS
    nodes.append(helper.make_node("GlobalAveragePool", [name], ["y"]))
    x = helper.make_tensor_value_info("x", 1, [1, 3, "h", "w"])
    y = helper.make_tensor_value_info("y", 1, [1, _CHANNELS, 1, 1])
    graph = helper.make_graph(nodes, "network", [x], [y], weights)
    save_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def _model() -> Path:
    return corpus.kept("network.onnx", _network)


def _options() -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    return options


@cache
def _packages() -> list[Path]:
    def plain(folder: Path) -> None:
        pack(_model(), folder, mode="external", plans=[{"x": _SHAPE}])

    def tiled(folder: Path) -> None:
        packed = pack(_model(), folder, tile=True, extra_work=1.0, shapes={"x": _SHAPE})
        assert packed.manifest.tiled, "a package with a second graph is wanted"

    return [corpus.kept("plain", plain), corpus.kept("tiled", tiled)]


@cache
def _expected(name: str) -> list[bytes]:
    """What a good package computes. Those with packed weights and without add up in other orders."""
    package = next(path for path in _packages() if path.name == name)
    return [each.tobytes() for each in _session(package).run(None, _FEEDS)]


def _session(model: Path, **planning: Any) -> onnxmem.InferenceSession:
    return onnxmem.InferenceSession(model, _options(), ["CPUExecutionProvider"], keep_plans=False, **planning)


def _compare(session: onnxmem.InferenceSession, expected: list[bytes]) -> None:
    for _ in range(2):
        if [each.tobytes() for each in session.run(None, _FEEDS)] != expected:
            raise WrongAnswer("the outputs are not the same")


# Packages.


def _package(number: int, folder: Path) -> Path:
    """A package of which one file is another, with hashes that are right again, most of the time."""
    chance = random.Random(number)
    source = chance.choice(_packages())
    path = folder / source.name
    shutil.copytree(source, path)
    manifest = path / MANIFEST
    how = chance.randrange(8)
    if how < 3:
        document = json.loads(changed_json(manifest.read_text(), chance))
        if chance.random() < 0.4 and isinstance(document, dict):
            document["model"] = chance.choice(_NAMES)
        manifest.write_text(sign(document) if isinstance(document, dict) else json.dumps(document))
        return path
    if how == 3:
        manifest.write_bytes(changed_bytes(manifest.read_bytes(), chance))
        return path
    if chance.random() < 0.1:
        _unlisted(path, chance)
        return path
    names = sorted(each.name for each in path.iterdir() if each.name != MANIFEST)
    name = chance.choice([each for each in names if each.endswith(".json")]) if how < 6 else chance.choice(names)
    file = path / name
    if how == 7 and chance.random() < 0.5:
        _replaced(file, chance)
        return path
    if name.endswith(".json"):
        content = file.read_text()
        spoiled = changed_bytes(content.encode(), chance) if chance.random() < BYTES / 3 else b""
        file.write_bytes(spoiled or changed_json(content, chance).encode())
    elif name.endswith(".onnx") and chance.random() < 0.7:
        model = ModelProto.FromString(file.read_bytes())
        with_changes = changed_model(model, chance)
        file.write_bytes(with_changes.SerializeToString())
        (folder / "others").touch()
    else:
        file.write_bytes(changed_bytes(file.read_bytes(), chance))
        (folder / "others").touch()
    if chance.random() < 0.9:
        _sign_again(path)
    return path


def _unlisted(package: Path, chance: random.Random) -> None:
    """A graph that keeps its weights where nobody has looked at them."""
    file = chance.choice(sorted(package.glob("*.onnx")))
    shutil.copy(package / WEIGHTS, package / _UNLISTED)
    model = ModelProto.FromString(file.read_bytes())
    for entry in (entry for tensor in all_tensors(model) for entry in tensor.external_data):
        if entry.key == "location":
            entry.value = _UNLISTED
    file.write_bytes(model.SerializeToString())
    _sign_again(package)


def _sign_again(package: Path) -> None:
    manifest = package / MANIFEST
    made = Manifest.parse(manifest.read_text(), manifest)
    manifest.write_text(replace(made, files=tuple(hash_file(package / each.name) for each in made.files)).text())


def _replaced(file: Path, chance: random.Random) -> None:
    """Something else under its name."""
    size = file.stat().st_size
    file.unlink()
    how = chance.randrange(4)
    if how == 0:
        file.mkdir()
    elif how == 1:
        os.mkfifo(file)
    else:
        file.symlink_to(f"../../{OUTSIDE}" if how == 2 else "/dev/zero")
        os.truncate(file.parent.parent.parent / OUTSIDE, size) if size < 2**20 and how == 2 else None


def _open(path: Path) -> None:
    try:
        session = _session(path)
        if (path / _UNLISTED).exists():
            raise WrongAnswer("a package loads what is not in its manifest")
        if [each.name for each in session.get_inputs()] != [*_FEEDS]:
            raise ModelError("it says that it wants other inputs")
        if not path.with_name("others").exists():  # what it computes is what its files say
            _compare(session, _expected(path.name))
        else:
            session.run(None, _FEEDS)
        verify_package(path)
        read_signature(path)
    except Exception as error:
        if type(error).__module__.startswith("onnxruntime"):
            raise ModelError("ONNX Runtime refuses it") from error
        raise


# Plans that users give.


@cache
def _plan() -> str:
    session = _session(_model())
    session.run(None, _FEEDS)
    return json.dumps(session.export_plans())


def _changed_plan(number: int, folder: Path) -> Path:
    chance, path = random.Random(number), folder / "plans.json"
    plans = json.loads(_plan())
    if chance.random() < 0.5:
        column = plans[0][chance.choice(("sizes", "lowers", "uppers", "offsets"))]
        for _ in range(chance.choice((1, 2, 5))):
            at = chance.randrange(len(column))
            near = (column[at] - 64, column[at] + 64, column[at] - 1, column[at] + 1, chance.choice(column))
            column[at] = chance.choice((*NUMBERS, *near, *near, 2**64, 2**63))
        path.write_text(json.dumps(plans))
    else:
        path.write_text(changed_json(json.dumps(plans), chance))
    return path


def _follow(path: Path) -> None:
    plans = json.loads(path.read_text())
    session = _session(
        _model(), plans=plans if isinstance(plans, list) else [plans], debug=path.stat().st_size % 4 == 0
    )
    _compare(session, _unplanned())


@cache
def _unplanned() -> list[bytes]:
    session = onnxruntime.InferenceSession(_model(), _options(), ["CPUExecutionProvider"])
    return [each.tobytes() for each in session.run(None, _FEEDS)]


# Plans that earlier processes left.

_KEY = RunKey((("x", _SHAPE),), (), ())


@cache
def _columns() -> tuple[int, list[int]]:
    (plan,) = json.loads(_plan())
    rows = [plan[name] for name in ("sizes", "lowers", "uppers", "offsets")]
    return len(rows[0]), [1, 0, 1, 0, plan["lower_bound_bytes"], len(rows[0]), 0, *(n for row in rows for n in row)]


def _left(number: int, folder: Path) -> Path:
    chance = random.Random(number)
    numbers = list(_columns()[1])
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(len(numbers))
        numbers[at] = chance.choice((*NUMBERS, numbers[at] + 64, numbers[at] - 64, chance.choice(numbers)))
    content = b"".join((each % 2**64).to_bytes(8, sys.byteorder) for each in numbers)
    path = folder / "onnxmem" / "plans"
    os.environ["XDG_CACHE_HOME"] = str(folder)
    plan_cache.write(KeptPlans("model", steady=True)._file(_KEY), content)
    (file,) = path.iterdir()
    if chance.random() < BYTES / 3:
        file.write_bytes(changed_bytes(file.read_bytes(), chance))
    os.utime(file, ns=(0, 0))
    return file


def _taken(path: Path) -> None:
    os.environ["XDG_CACHE_HOME"] = str(path.parents[2])
    found = KeptPlans("model", steady=True).read(_KEY)
    os.utime(path, ns=(0, 0))  # it says when it was last of use
    if found is None:
        raise ModelError("it is not there")
    trace, places = found.trace, found.placement
    shared = {tuple(pair) for pair in places.shared.tolist()}
    ends = np.where(trace.uppers < 0, 2**62, trace.uppers)
    rows = [row for row in range(len(trace)) if places.offsets[row] >= 0 and trace.sizes[row]]
    for one in rows:
        for other in rows:
            at_once = trace.lowers[one] < ends[other] and trace.lowers[other] < ends[one]
            first, second = int(places.offsets[one]), int(places.offsets[other])
            apart = first + int(trace.sizes[one]) <= second or second + int(trace.sizes[other]) <= first
            if one < other and at_once and not apart and not {(one, other), (other, one)} & shared:
                raise WrongAnswer(f"buffers {one} and {other} are at one place")
    if rows and max(int(places.offsets[row]) + int(trace.sizes[row]) for row in rows) > places.peak:
        raise WrongAnswer("a buffer is behind the end")


TARGETS: Mapping[str, Target] = {
    "package": Target(_package, _open),
    "plans": Target(_changed_plan, _follow),
    "kept": Target(_left, _taken),
}


def _named(path: Path) -> None:
    """A reader that is wrong: it opens the file that a manifest names, wherever that is."""
    try:
        model = path / str(json.loads((path / MANIFEST).read_text())["model"])
        model.open("rb").close()
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise ModelError("damaged") from error


def _unchecked(path: Path) -> None:
    """A reader that is wrong: it does not look whether the places of a kept plan overlap."""
    checked = kept._checked

    def believed(trace: Any, offsets: Any, shared: Any, bound: int, improvable: bool) -> kept.KeptPlan:
        return kept.KeptPlan(trace, Placement(offsets, 2**62, bound, improvable, shared))

    kept._checked = believed
    try:
        _taken(path)
    finally:
        kept._checked = checked


PLANTED = {"package": _named, "kept": _unchecked}
