from __future__ import annotations

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.placement.plan import Plan
from onnxmem.report.charts import picture
from onnxmem.report.charts.bars import strategies
from onnxmem.report.charts.curves import scaling_chart, share_chart
from onnxmem.report.charts.memory_map import memory_map
from onnxmem.report.save import save_chart
from tests.unit.report import samples


class Elements(HTMLParser):
    """The elements a browser would make of a page, and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]


def test_each_suffix_gives_its_kind_of_file(unet: Plan, tmp_path: Path) -> None:
    chart = memory_map(unet, title="U-Net")
    for name in ("map.svg", "map.png", "MAP.HTML"):
        save_chart(chart, tmp_path / name)
    assert ElementTree.parse(tmp_path / "map.svg").getroot().tag.endswith("svg")
    png = (tmp_path / "map.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    width = int.from_bytes(png[16:20])
    assert width > 2 * 840  # twice the size of the SVG
    assert "<title>U-Net</title>" in (tmp_path / "MAP.HTML").read_text()
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("name", ["map.pdf", "map", "map.json", ".svg"])
def test_any_other_suffix_is_refused_before_anything_is_written(unet: Plan, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        save_chart(memory_map(unet), tmp_path / name)
    assert all(suffix in caught.value.hint for suffix in (".svg", ".png", ".html"))
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_picture(unet: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "map.svg"
    target.write_text("old")

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", fail)
    with pytest.raises(UsageError, match="No space left"):
        save_chart(memory_map(unet), target)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["map.svg"]


def test_hostile_names_stay_text(hostile: Plan, tmp_path: Path) -> None:
    evil = "</script><img src=x onerror=alert(1)>"
    rows = [{"name": b.id, "bytes": b.size, "lower": b.lower, "upper": b.upper, "offset": 0, "shape": [evil],
             "kind": evil, "producer": evil, "consumers": [evil]} for b in hostile.problem]  # fmt: skip
    chart = memory_map(hostile, title=evil, placement=rows)
    save_chart(chart, tmp_path / "map.svg")
    save_chart(chart, tmp_path / "map.html")
    svg = ElementTree.parse(tmp_path / "map.svg")
    drawn = {element.tag.rpartition("}")[2] for element in svg.iter()}
    assert drawn <= {"svg", "style", "rect", "g", "path", "line", "text", "title", "tspan"}
    assert any(evil in (element.text or "") for element in svg.iter())
    page = Elements((tmp_path / "map.html").read_text())
    outside = [tag for tag in page.tags if tag not in ("g", "path", "rect", "text", "tspan", "title", "line")]
    assert " ".join(outside) == "html head meta meta meta meta meta style body figure div div svg script"
    assert "onerror" not in page.attributes


def test_the_page_is_light_and_needs_nothing_else(unet: Plan, tmp_path: Path) -> None:
    save_chart(memory_map(unet), tmp_path / "map.html")
    text = (tmp_path / "map.html").read_text()
    page = Elements(text)
    assert not {"src", "href"} & set(page.attributes)
    assert "default-src 'none'" in text and "unsafe-eval" not in text
    assert len(text) < 100_000 and 'class="picture map"' in text
    save_chart(strategies(samples.estimate()["activations"]), tmp_path / "bars.html")
    assert 'class="picture"' in (tmp_path / "bars.html").read_text()


def test_the_svg_follows_light_and_dark(unet: Plan) -> None:
    svg = picture.chart_svg(memory_map(unet))
    swapped = re.findall(r'\[fill="(#\w+)"\]', svg.partition("</style>")[0])
    assert "prefers-color-scheme: dark" in svg
    assert all(f'="{colour}"' in svg.partition("</style>")[2] for colour in swapped)


def test_without_the_converter_the_error_says_what_to_install(
    unet: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(RuntimeUnsupported, match="vl-convert-python"):
        save_chart(memory_map(unet), tmp_path / "map.svg")


def test_points_of_curves_say_what_they_are_without_a_script() -> None:
    sizes, workers = (
        picture.chart_svg(chart) for chart in (scaling_chart(samples.compare()), share_chart(samples.share()))
    )
    assert "<title>1. model.onnx at 512: 80.2 MiB</title>" in sizes
    assert "<title>stock, 2 workers: 180.0 MiB</title>" in workers
