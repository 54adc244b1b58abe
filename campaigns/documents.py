"""Texts: tables of problems and plans, results, baselines, and the TOML files of projects and sweeps."""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import onnxmem
from campaigns import corpus
from campaigns.hunt import Target, WrongAnswer
from campaigns.mutations import changed_bytes, changed_json, changed_text, changed_toml
from onnxmem.checking.baseline import read_baseline
from onnxmem.checking.settings import read_settings
from onnxmem.errors import UsageError
from onnxmem.explaining.explain import read_measurement
from onnxmem.report.build import read_report
from onnxmem.report.render.to_html import render_html
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import render_markdown
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Report
from onnxmem.sweeping.cells import make_cells
from onnxmem.sweeping.spec import read_spec
from tests.unit.comparison.samples import candidate, comparison

BYTES = 0.3
"""How many of the inputs have changed bytes, and not changed things."""

_PROBLEM = "id,lower,upper,size,shares\na,0,4,64,\nb,3,6,64,a\nc,5,9,32,\nd,6,12,256,\ne,8,12,32,c\n"
_PLAN = "id,lower,upper,size,offset\na,0,4,64,0\nb,4,6,128,0\nc,5,9,32,128\n"
_SETTINGS = """[tool.onnxmem]
threads = 1
repeat = 2
tolerance = "5%"
baseline = "history"
history = "memory.sqlite"

[[tool.onnxmem.check]]
model = "model.onnx"
mode = ["stock", "planned"]
shapes = {x = [1, 3, 8, 8]}
budget = {stock = "300MiB", planned = "200MiB"}

[[tool.onnxmem.check]]
name = "second"
model = "model.onnx"
dims = [{batch = 1, height = 8, width = 8}, {batch = 2, height = 8, width = 8}]
figure = "peak"
by = "estimate"
budget = 100000000
"""
_SPEC = """store = "nightly.sqlite"
verbs = ["estimate", "measure"]
modes = ["stock", "planned"]
runs = 3
time_limit = 20.5
memory_limit = "512MiB"

[[models]]
path = "*.onnx"
dims = {batch = [1, 4], height = 8, width = 8}

[[models]]
path = ["model.onnx"]
shapes = {x = "1x3x8x8"}
verbs = "plan"
workers = [1, 2]
"""
Change = Callable[[str, random.Random], str]


def text(content: str | Callable[[], list[str]], name: str, change: Change) -> Callable[[int, Path], Path]:
    """Writes one of these texts, changed."""

    def make(number: int, folder: Path) -> Path:
        chance, path = random.Random(number), folder / name
        chosen = content if isinstance(content, str) else chance.choice(content())
        if chance.random() < BYTES:
            path.write_bytes(changed_bytes(chosen.encode(), chance))
        else:
            path.write_bytes(change(chosen, chance).encode("utf-8", "surrogatepass"))
        return path

    return make


def beside_a_model(make: Callable[[int, Path], Path]) -> Callable[[int, Path], Path]:
    """The same, with a model that it may name."""

    def made(number: int, folder: Path) -> Path:
        (folder / "model.onnx").write_bytes(corpus.saved("convolutions.onnx", 0).read_bytes())
        return make(number, folder)

    return made


# Tables.


def _problem(path: Path) -> None:
    problem = onnxmem.read_problem(path)
    onnxmem.validate_plan(onnxmem.solve(problem, strategy="greedy_by_size"))


def _plan(path: Path) -> None:
    onnxmem.validate_plan(onnxmem.read_plan(path))


# Results.


@cache
def _results() -> list[str]:
    path = corpus.saved("convolutions.onnx", 0)
    question = {"dims": {"batch": 1, "height": 16, "width": 16}}
    made = (
        onnxmem.estimate(path, view="raw", processes=False, time_limit=5, **question),  # type: ignore[arg-type]
        onnxmem.plan(path, view="raw", time_limit=5, **question),  # type: ignore[arg-type]
    )
    return [json.dumps(each.document()) for each in made]


@cache
def _measured() -> list[str]:
    """Results of verbs that run models."""
    model = corpus.saved("loops.onnx", 4)

    def write(folder: Path) -> None:
        folder.mkdir()
        measurement = onnxmem.measure(model, runs=1)
        # Of hundreds of samples, each as good as another, nearly all changes would be in one.
        measurement = replace(measurement, timeline=measurement.timeline[:5])
        checking = onnxmem.check(model, budget="1GiB", runs=1)
        compared = comparison(candidate("a", 10, 11), candidate("b", 20, 21, mode="planned"))
        found = (("0", checking), ("1", measurement), ("2", onnxmem.explain(model)), ("3", compared))
        for name, each in found:
            (folder / name).write_text(json.dumps(each.document()))

    return [path.read_text() for path in sorted(corpus.kept("measured", write).iterdir())]


def draw(report: Report, path: Path) -> None:
    """As Markdown, and one in four also for a terminal: that takes ten times as long."""
    renderers = [render_markdown, render_text][: 1 + (zlib.crc32(path.read_bytes()) % 4 == 0)]
    for shown in (render(report) for render in renderers):
        if odd := [c for c in shown if not c.isprintable() and c != "\n"]:
            raise WrongAnswer(f"a report has the character {odd[0]!r}")


def _report(path: Path) -> None:
    report = read_report([path])
    draw(report, path)
    json.loads(render_json(report))


class _Page(HTMLParser):
    """Is there anything on a page that is not ours? Names come from files, and must be no markup."""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name.startswith("on") or (name in ("href", "src", "xlink:href") and not (value or "").startswith("#")):
                raise WrongAnswer(f"the page has {tag} {name}={value!r}")
        if tag in ("iframe", "object", "embed", "base", "form", "link", "img"):
            raise WrongAnswer(f"the page has a {tag}")

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "alert(1)" in data:
            raise WrongAnswer("a script has a name of the file in it")


def _page(path: Path) -> None:
    """With its pictures one time in ten: they take twenty times as long as the rest."""
    report = read_report([path])
    if zlib.crc32(path.read_bytes()) % 10:
        report = replace(report, sections=tuple(replace(section, charts=()) for section in report.sections))
    page = _Page()
    page.feed(render_html(report))
    page.close()


def _baseline(path: Path) -> None:
    entries = read_baseline(path)
    for entry in entries:
        if type(entry).from_document(json.loads(json.dumps(entry.document()))) != entry:
            raise WrongAnswer("an entry does not survive being written and read")


def _explain(path: Path) -> None:
    found = read_measurement(path)
    if type(found).from_document(json.loads(json.dumps(found.document()))) != found:
        raise WrongAnswer("a measurement does not survive being written and read")


# Settings.


def _settings(path: Path) -> None:
    for case in read_settings(path).cases:
        if not case.scenario.model.exists():
            raise WrongAnswer("a case has no model")
        str(case)


def _spec(path: Path) -> None:
    make_cells(read_spec(path))


TARGETS: Mapping[str, Target] = {
    "problem": Target(text(_PROBLEM, "problem.csv", changed_text), _problem),
    "plan": Target(text(_PLAN, "plan.csv", changed_text), _plan),
    "result": Target(text(lambda: [*_results(), *_measured()], "result.json", changed_json), _report),
    "page": Target(text(lambda: [*_results(), *_measured()], "result.json", changed_json), _page),
    "baseline": Target(text(lambda: _measured()[:2], "baseline.json", changed_json), _baseline),
    "explain": Target(text(lambda: _measured()[1:2], "measurement.json", changed_json), _explain),
    "settings": Target(beside_a_model(text(_SETTINGS, "pyproject.toml", changed_toml)), _settings),
    "spec": Target(beside_a_model(text(_SPEC, "sweep.toml", changed_toml)), _spec),
}


def _believing(path: Path) -> None:
    """A reader that is wrong: it believes what a file says about its own length."""
    content = path.read_bytes()
    if content[:2] != b"id":
        raise UsageError("not a table")
    content.split(b",")[4 + content[-2] % 8]


PLANTED = {"problem": _believing}
