"""A report says what the results say: every number, every name, in every format."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from dataclasses import FrozenInstanceError
from hashlib import sha256
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from onnxmem.errors import UsageError
from onnxmem.measurement.parts import parts_of
from onnxmem.report.build import make_report, read_report
from onnxmem.report.charts.drawings import specification
from onnxmem.report.charts.scaling import scaling_chart
from onnxmem.report.charts.svg import NotADrawing, embeddable
from onnxmem.report.render.notebook import fragment
from onnxmem.report.render.to_html import render_html
from onnxmem.report.render.to_json import render_json
from onnxmem.report.render.to_markdown import render_markdown
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Report
from onnxmem.report.save import save_report
from onnxmem.report.sections import section
from onnxmem.zoo import build
from tests.unit.report import samples

TAGS = {
    *(
        "a",
        "body",
        "br",
        "caption",
        "circle",
        "clippath",
        "code",
        "dd",
        "defs",
        "details",
        "div",
        "dl",
        "dt",
        "figcaption",
        "figure",
    ),
    *(
        "footer",
        "g",
        "h1",
        "h2",
        "h3",
        "head",
        "header",
        "html",
        "li",
        "line",
        "main",
        "meta",
        "nav",
        "ol",
        "p",
        "path",
    ),
    *("rect", "section", "span", "strong", "style", "sup", "summary", "svg", "table", "tbody", "td", "text", "th"),
    *("script", "thead", "title", "tr", "tspan", "ul"),
}


class Page(HTMLParser):
    """What a browser would see: tags, attributes, the numbers behind cells, and text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.scripts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script":
            self.scripts.append(data)
        else:
            self.text += data

    @property
    def numbers(self) -> list[float]:
        return [float(a["data-value"] or "nan") for _, a in self.tags if "data-value" in a]


def numbers(value: Any) -> set[float]:
    """All numbers of a JSON document."""
    if isinstance(value, dict):
        return set().union(*(numbers(each) for each in value.values()))
    if isinstance(value, list):
        return set().union(*(numbers(each) for each in value))
    return {float(value)} if isinstance(value, int | float) and not isinstance(value, bool) else set()


@pytest.fixture(scope="module")
def report() -> Report:
    return make_report([*samples.all_of_them(), samples.measure("planned", 9 * samples.MIB)])


@pytest.fixture(scope="module")
def page(report: Report) -> Page:
    return Page(render_html(report))


def test_every_number_in_the_page_is_in_the_json_or_follows_from_it(report: Report, page: Page) -> None:
    document = json.loads(render_json(report))
    known, ends = numbers(document), {float(row["upper"]) for row in report.documents[1]["placement"]}
    known |= {end - 1 for end in (*ends, 3)}  # a lifetime is half open
    known |= {float(n or 0) for d in report.documents if "phases" in d for n in (parts_of(d) or {}).values()}
    known |= {float(len(report.documents[0]["activations"]["unknown"]))}
    assert len(page.numbers) > 100
    assert not [number for number in page.numbers if number not in known]


def test_a_comparison_has_the_scaling_curve_of_its_picture(page: Page) -> None:
    document = samples.compare()
    drawn = scaling_chart(document).to_dict()
    (chart,) = section(document).charts
    assert specification(chart) == {key: value for key, value in drawn.items() if key != "title"}
    kinds = [layer["mark"]["type"] for layer in drawn["layer"]]
    assert kinds == ["line", "line", "rule", "point", "text"]
    fitted, beyond = (drawn["datasets"][layer["data"]["name"]] for layer in drawn["layer"][:2])
    assert fitted[-1]["x"] == beyond[0]["x"] == 786432 and beyond[-1]["x"] == 1572864
    assert "extrapolated" in chart.title and "error unknown" in chart.alt and "extrapolated" in page.text
    alone = {**document, "candidates": [{**each, "inputs": each["inputs"][:1]} for each in document["candidates"]]}
    assert specification(section(alone).charts[0])["layer"][0]["mark"]["type"] == "bar"


def test_the_page_is_accessible(page: Page) -> None:
    tags = [tag for tag, _ in page.tags]
    assert dict(page.tags)["html"]["lang"] == "en"
    assert {"header", "nav", "main", "footer", "h1"} <= set(tags) and tags.count("h1") == 1
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in page.tags if tag == "th")
    assert tags.count("caption") == tags.count("table") > 5
    pictures = [attributes for _, attributes in page.tags if attributes.get("role") == "img"]
    assert len(pictures) >= tags.count("figure") > 5 and all(len(each["aria-label"] or "") > 20 for each in pictures)
    anchors = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(anchors) == len(set(anchors))


def test_the_page_loads_nothing_and_runs_only_its_own_script(page: Page) -> None:
    policy = next(a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv")) or ""
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    (script,) = page.scripts
    known = b64encode(sha256(script.encode()).digest()).decode()
    own = files("onnxmem.report.render") / "page" / "map.js"
    assert script == own.read_text(encoding="utf-8") and rules["script-src"] == f"'sha256-{known}'"
    assert rules["default-src"] == "'none'" and set(rules) == {
        *("default-src", "style-src", "script-src", "base-uri", "form-action")
    }
    # It asks nobody for anything, and makes no markup of what it reads.
    assert not re.search(r"fetch|XMLHttp|import|eval|Function|innerHTML|outerHTML|insertAdjacent|https?:", script)
    assert {tag for tag, _ in page.tags} <= TAGS
    assert all((a["href"] or "").startswith("#") for _, a in page.tags if "href" in a)
    assert not [a for _, a in page.tags if "src" in a]


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_names_with_markup_are_only_text(name: str) -> None:
    report = make_report([*samples.all_of_them(name), samples.measure("tuned", name=name, kind="failed")], name)
    page = Page(render_html(report))
    assert {tag for tag, _ in page.tags} <= TAGS
    assert len(page.scripts) == 1 and page.scripts[0].startswith("// Search, click and zoom")
    assert not [key for _, attributes in page.tags for key in attributes if key.startswith("on")]
    assert all((a["href"] or "").startswith("#") for _, a in page.tags if "href" in a)
    assert "49" not in page.text.partition("7 * 7")[0][-200:]
    shown = page.text + render_markdown(report) + render_text(report)
    assert "\u202e" not in shown and "\x00" not in shown


@pytest.mark.parametrize("name", samples.HOSTILE)
def test_names_cannot_change_the_markdown(name: str) -> None:
    plain, hostile = (
        render_markdown(make_report(samples.all_of_them(n))) for n in ("a/model/with/a/long/name.onnx", name)
    )
    assert "<" not in hostile and not re.search(r"(?<!\\)!?\[|://", hostile)

    def structure(text: str) -> list[tuple[str, int]]:
        return [(line[:2], len(re.findall(r"(?<!\\)\|", line))) for line in text.splitlines() if line[:1] in "#|"]

    assert structure(plain) == structure(hostile)


def test_a_plan_of_500_tensors_is_a_small_page() -> None:
    report = make_report([samples.plan(500)])
    html = render_html(report)
    assert len(html.encode()) < 3e6
    assert len(Page(html).numbers) > 500 * 4
    assert "… and 488 more" in render_markdown(report) and "… and 488 more" in render_text(report)


def test_text_and_markdown_need_no_drawing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    report = make_report(samples.all_of_them())
    assert "90.0% of the 100.0 MiB that model.onnx brought" in render_text(report)
    assert "| best | 8.0 MiB | provably minimal | 12.3 ms |" in render_markdown(report)


def test_a_saved_report_is_read_again(tmp_path: Path) -> None:
    report = make_report(samples.all_of_them(), "All of them")
    for suffix in ("html", "md", "txt", "json"):
        save_report(report, tmp_path / f"report.{suffix}")
    again = read_report([tmp_path / "report.json"], "All of them")
    assert again == report and render_html(again) == (tmp_path / "report.html").read_text()
    with pytest.raises(FrozenInstanceError):
        again.title = "another"  # type: ignore[misc]


def test_measurements_are_compared() -> None:
    report = make_report([samples.measure(), samples.measure("planned", 10 * samples.MIB)])
    glance = report.sections[0]
    assert glance.summary == "Peak memory: 70.0 MiB planned, 100.0 MiB stock (30.0% less)."
    running = "Running took 10.0 MiB planned, 40.0 MiB stock (75.0% less). The outputs are equal, bit for bit."
    assert glance.story == (running,)
    assert [(each.text, each.saving) for each in glance.actions] == [("Run it planned", "30.0 MiB")]
    near = make_report([samples.measure(), samples.measure("tuned", 39 * samples.MIB)]).sections[0]
    assert "about the same" in near.summary and any("--repeat" in note for note in near.notes)
    assert "The outputs are equal, bit for bit." in glance.notes
    assert "Running took 40.0 MiB stock" in make_report([samples.estimate(), samples.measure()]).sections[0].summary
    assert len(make_report([samples.estimate("another.onnx"), samples.measure()]).sections) == 2


LARGER = {"model.onnx": {"dtype": "float32", "shape": [2, 3]}}


@pytest.mark.parametrize(
    ("changed", "what"),
    [
        ({"inputs": LARGER}, "their input shapes differ"),
        ({"model": "other.onnx"}, "their models differ"),
        ({"file_bytes": 1}, "their versions of the model differ"),
        ({"environment": {**samples.ENVIRONMENT, "cpu": "another"}}, "their cpu differs"),
        ({"environment": {**samples.ENVIRONMENT, "cpu": "b", "python": "3.13"}}, "their python and cpu differ"),
    ],
)
def test_results_that_differ_in_more_than_the_mode_are_not_compared(changed: dict[str, Any], what: str) -> None:
    other = {**samples.measure("planned", 10 * samples.MIB), **changed}
    glance = make_report([samples.measure(), other]).sections[0]
    assert glance.alarm and what in glance.summary and "cannot be compared" in glance.summary
    assert not glance.actions and not glance.story
    assert ("less" not in glance.summary and "equal" not in " ".join(glance.notes)) or "environment" in changed


def test_an_estimate_for_other_shapes_is_not_held_against_a_measurement() -> None:
    other = {**samples.measure(), "inputs": LARGER}
    assert make_report([samples.estimate(), other]).sections[0].heading.startswith("Estimate")


def test_a_measurement_says_how_its_plan_went_or_why_there_was_none() -> None:
    counts = {"runs_recorded": 1, "runs_replayed": 4, "runs_deviated": 1, "runs_from_heap": 0, "notes": []}
    sizes = {"arena_bytes": 9 * samples.MIB, "plan_bytes": 9 * samples.MIB, "lower_bound_bytes": 8 * samples.MIB}
    planned = {"loaded_mode": "planned", "reason": None, **sizes, **counts}
    text = " ".join(render_text(make_report([{**samples.measure("planned"), "planned": planned}])).split())
    assert "plan 9.0 MiB at least 8.0 MiB are needed; runs: 1 recorded, 4 inside the plan, 1 deviating from it" in text
    fallen = {**planned, "loaded_mode": "stock", "reason": "planned sessions need Linux, and this is darwin"}
    report = make_report([samples.measure(), {**samples.measure("planned"), "planned": fallen}])
    text = " ".join(render_text(report).split())
    assert "planned (ran as stock)" in text
    assert "Not planned, it ran as stock: planned sessions need Linux, and this is darwin." in text
    assert "at least 8.0 MiB" not in text and report.sections[0].story == ()


@pytest.mark.parametrize("size", [None, 0])
def test_no_plan_is_not_a_minimal_plan(size: int | None) -> None:
    counts = {"runs_recorded": 6, "runs_replayed": 0, "runs_deviated": 0, "runs_from_heap": 0, "notes": []}
    sizes = {"arena_bytes": size, "plan_bytes": size, "lower_bound_bytes": size}
    planned = {"loaded_mode": "planned", "reason": None, **sizes, **counts}
    text = render_text(make_report([{**samples.measure("planned"), "planned": planned}]))
    assert "No plan was made; runs: 6 recorded." in text
    assert "minimal" not in text and " 0 B" not in text


def test_a_limit_is_named_also_by_who_ran_into_it() -> None:
    limit = {"memory_limit": {"bytes": 512 * samples.MIB, "enforced_by": "RLIMIT_DATA"}}
    fitting = make_report([{**samples.measure(), **limit}]).sections[0]
    assert any(
        f.label == "limit" and f.about == "the peak is 19.5% of it; enforced by RLIMIT_DATA" for f in fitting.facts
    )
    failed = make_report([{**samples.measure(kind="out of memory"), **limit}]).sections[0]
    assert failed.summary.startswith("The process ran out of memory within the limit of 512.0 MiB in phase 'load'")
    assert failed.alarm


def test_the_peak_is_split_into_parts_that_add_up() -> None:
    document = samples.measure(run=100 * samples.MIB)
    document["runtime"] |= {"weights_bytes": 3 * samples.MIB, "packed_bytes": 2 * samples.MIB}
    chart = next(c for c in make_report([document]).sections[0].charts if c.kind == "peak parts")
    (bar,) = chart.document["bars"]
    sizes = {part["name"]: part["bytes"] for part in bar["parts"]}
    assert sum(sizes.values()) == max(phase["peak_rss_bytes"] for phase in document["phases"])
    assert sizes["weights"] == 3 * samples.MIB and sizes["packed copies"] == 2 * samples.MIB
    assert sizes["libraries"] == 15 * samples.MIB and sizes["arena"] == 100 * samples.MIB + 100
    del document["runtime"]["weights_bytes"]
    parts = parts_of(document)
    assert parts and parts["weights"] is None and parts["heap"] == sizes["heap"] + 3 * samples.MIB
    blind = {**document, "phases": [{**phase, "made_of": None} for phase in document["phases"]]}
    section = make_report([blind]).sections[0]
    assert all(chart.kind != "peak parts" for chart in section.charts)


def test_one_is_not_many() -> None:
    text = render_text(make_report([samples.plan(1)]))
    assert "1 buffer takes" in text and "1 buffers" not in text


def test_who_ended_early_has_not_won() -> None:
    report = make_report([samples.measure(), samples.measure("planned", 1, kind="out of memory")])
    assert "less" not in report.sections[0].summary
    assert "out of memory" in render_text(report)


def test_bad_news_comes_first() -> None:
    report = make_report([samples.measure(kind="out of memory"), samples.compare(same=False)])
    assert all(section.alarm for section in report.sections)
    excluded = "The answers differ by up to 1.5e-05: candidates whose outputs differ are excluded."
    assert report.sections[1].summary == excluded
    assert "Attention" in Page(render_html(report)).text and "**Attention:**" in render_markdown(report)
    assert "lost could not be measured: model.onnx" in report.sections[1].notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a JSON file"),
        ("\xff", "is not a JSON file"),
        ("[1]", "is no result of onnxmem"),
        ("{}", "names no schema"),
        ('{"schema": 5}', "names no schema"),
        ('{"schema": "onnxmem.magic/1"}', "no report on 'onnxmem.magic/1'"),
        ('{"schema": "onnxmem.../estimate/1"}', "no report on"),
        ('{"schema": "onnxmem.measure/2"}', "was written by a newer onnxmem"),
        ('{"schema": "onnxmem.measure/1"}', "it has no 'verdict'"),
        ('{"schema": "onnxmem.plan/1", "buffers": 1, "peak_bytes": "<b>"}', "'peak_bytes' is '<b>', not a number"),
        ('{"schema": "onnxmem.plan/1", "buffers": 1, "peak_bytes": NaN}', "is not a JSON file"),
        ('{"schema": "onnxmem.release/1", "steps": 7, "released_fraction": 0.5}', "is no result of 'onnxmem release'"),
    ],
)
def test_what_is_no_result_is_refused_in_a_sentence(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "result.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match=re.escape(message)) as refused:
        read_report([path])
    assert "result.json" in str(refused.value) and refused.value.hint


def test_nothing_but_drawings_is_embedded() -> None:
    drawing = '<svg xmlns="http://www.w3.org/2000/svg"><clipPath id="c"/><g clip-path="url(#c)"/></svg>'
    assert embeddable(drawing, "p-").count("p-c") == 2
    for bad in ("<script/>", "<image/>", '<g onclick="x"/>', '<g href="#"/>', "<foreignObject/>"):
        with pytest.raises(NotADrawing):
            embeddable(f'<svg xmlns="http://www.w3.org/2000/svg">{bad}</svg>', "p-")


def test_notebooks_show_results_as_reports() -> None:
    from onnxmem import Model, estimate, plan  # noqa: PLC0415

    model = Model.of(build("unet", channels=4), "<b>U-Net")
    for shown in (estimate(model), plan(model)):
        first, second = (shown._repr_html_() for _ in range(2))
        assert first and second and "<html" not in first and "<svg" in first and "<b>U" not in first
        ids = [re.findall(r'\bid="([^"]+)"', text) for text in (first, second)]
        assert not set(ids[0]) & set(ids[1])  # two of them may stand in one notebook


def test_all_results_are_shown_in_notebooks_and_saved_ones_read_the_same() -> None:
    for kind in ("compare", "release", "track", "demonstrate"):
        document = getattr(samples, kind)()
        saved = json.loads(json.dumps(document))
        assert make_report([document]) == make_report([saved])
        assert "<table" in (fragment(document) or "")


@pytest.mark.parametrize(("verdict", "words"), [("winner", "59.9% less"), ("undecided", "undecided")])
def test_a_comparison_promises_nothing_that_is_undecided(verdict: str, words: str) -> None:
    document = samples.compare()
    document["rows"].append({**document["rows"][1], "metric": "peak memory", "size": "512", "verdict": verdict})
    summary = make_report([document]).sections[0].summary
    assert summary.startswith(f"Peak memory at 512: 80.2 MiB model.onnx, 200.2 MiB factory:net ({words}).")


def test_timelines_of_one_model_have_one_scale() -> None:
    def tops(*modes: str) -> list[int]:
        sections = make_report([samples.measure(mode) for mode in modes]).sections
        charts = [chart for section in sections for chart in section.charts if chart.kind == "timeline"]
        return [chart.document["scale_bytes"] for chart in charts]

    alone = [*tops("stock"), *tops("planned")]
    assert tops("stock", "planned") == [max(alone)] * 2
    assert all("scale_bytes" not in document for document in make_report([samples.measure("stock")]).documents)


def test_a_share_says_how_latencies_were_compared_and_what_was_recommended() -> None:
    document = samples.share()
    section = make_report([document]).sections[-1]
    assert any("not by the ratio of the medians" in note for note in section.notes)
    assert section.summary == "2 workers together take 80.0 MiB model.onnx, 180.0 MiB stock (sum of PSS, 55.6% less)."
    assert section.actions[0].text == "Use model.onnx. Trade-off: model.onnx. Avoid if model.onnx."
    assert section.facts[0].label == "together, model.onnx"
    keep = [{"mode": "stock", "text": "Keep stock.", "trade_off": "none", "avoid_if": "never"}]
    kept = make_report([{**document, "recommendations": keep}]).sections[-1]
    assert (
        kept.summary.startswith("2 workers together take 180.0 MiB stock") and kept.facts[0].label == "together, stock"
    )


def test_commands_are_about_the_same_model_and_inputs() -> None:
    command = "onnxmem measure 'my models/model.onnx' --shape x=1x3 --mode stock --dim n=2"
    (section,) = make_report([{**samples.measure(), "command": command}]).sections
    again = "onnxmem measure 'my models/model.onnx' --shape x=1x3 --dim n=2 --mode planned"
    assert section.actions[0].command == again
