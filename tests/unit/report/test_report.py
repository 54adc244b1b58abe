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
from onnxmem.report.charts.curves import scaling_chart
from onnxmem.report.charts.picture import NotADrawing, embeddable, specification
from onnxmem.report.render.to_html import render_html, result_html
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
        self.html = html
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


def test_a_saved_report_is_read_again(report: Report, page: Page, tmp_path: Path) -> None:
    save_report(report, tmp_path / "report.json")
    again = read_report([tmp_path / "report.json"])
    assert again == report
    for suffix in ("html", "md", "txt"):
        save_report(again, tmp_path / f"report.{suffix}")
    assert (tmp_path / "report.html").read_text() == page.html
    with pytest.raises(FrozenInstanceError):
        again.title = "another"  # type: ignore[misc]


def test_bad_news_comes_first() -> None:
    report = make_report([samples.measure(kind="out of memory"), samples.compare(same=False)])
    assert all(section.alarm for section in report.sections)
    excluded = "The answers differ by up to 1.5e-05: candidates whose outputs differ are excluded."
    assert report.sections[1].summary == f"{excluded} lost could not be measured: see below."
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


@pytest.mark.parametrize("sample", [{"seconds": 1.0}, 7, {"seconds": 1.0, "rss_bytes": "many"}])
def test_a_timeline_that_cannot_be_drawn_is_refused_in_a_sentence(tmp_path: Path, sample: object) -> None:
    path, document = tmp_path / "result.json", samples.measure()
    path.write_text(json.dumps({**document, "timeline": [sample]}))
    with pytest.raises(UsageError, match=r"result\.json': this is no result of 'onnxmem measure'"):
        read_report([path])


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
        assert "<table" in (result_html(document) or "")
