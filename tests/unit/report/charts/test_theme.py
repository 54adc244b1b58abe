"""Text has a contrast of 4.5 at least, lines one of 3, in light and dark; and no chart writes in other colours."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from onnxmem.report.charts import bars, curves, parts, theme, timeline
from onnxmem.report.charts.memory_map import placement_map
from onnxmem.report.charts.theme import DARK, LIGHT, Theme, contrast
from tests.unit.report import samples

PARTS = [{"label": "stock", "parts": [{"name": name, "bytes": 30 << 20} for name in (*theme.PARTS, "other")]}]
LIMITED = {**samples.measure(), "memory_limit": {"bytes": 150 << 20, "enforced_by": "cgroup"}}
CHARTS: dict[str, Callable[[], Any]] = {
    "map": lambda: placement_map(samples.plan(300)),
    "parts": lambda: parts.peak_parts({"bars": PARTS}),
    "scaling": lambda: curves.scaling_chart(samples.compare()),
    "side by side": lambda: bars.side_by_side({"bars": [{"name": "stock", **samples.measure()}]}),
    "strategies": lambda: bars.strategies(samples.estimate()["activations"]),
    "timeline": lambda: timeline.timeline_chart(samples.measure()),
    "waterfall": lambda: bars.waterfall_chart(samples.release()),
    "workers": lambda: curves.share_chart(samples.share()),
}


def test_contrast_is_counted_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_what_is_written_on_paper_can_be_read(scheme: Theme) -> None:
    for colour in (scheme.ink, scheme.muted, scheme.peak):
        assert contrast(colour, scheme.paper) >= 4.5, colour
    for colour in theme.LINES:
        assert contrast(colour, scheme.paper) >= 3, colour


def test_what_is_written_on_fills_can_be_read() -> None:
    fills = {
        *theme.SIZES,
        *theme.PARTS.values(),
        *theme.FINE_PARTS.values(),
        theme.AT_PEAK,
        theme.TOGETHER,
        theme.OTHER,
    }
    for fill in fills | {theme.FILE, theme.ANONYMOUS, theme.OPTIMAL}:
        assert contrast(theme.text_on(fill), fill) >= 4.5, fill


def test_series_differ_in_more_than_hue() -> None:
    assert len(set(theme.SHAPES)) == len(set(theme.DASHES)) == len(theme.LINES)
    assert contrast(theme.FILE, theme.ANONYMOUS) >= 2
    for shades in (theme.PARTS, theme.FINE_PARTS):
        assert all(contrast(one, other) >= 1.7 for one, other in itertools.pairwise(shades.values()))


def marks(spec: Any) -> Iterator[dict[str, Any]]:
    """Every layer with a mark, however deep it lies."""
    if isinstance(spec, dict):
        if "mark" in spec:
            yield spec
        for value in spec.values():
            yield from marks(value)
    elif isinstance(spec, list):
        for value in spec:
            yield from marks(value)


@pytest.mark.parametrize("name", CHARTS)
def test_charts_write_only_in_colours_that_can_be_read(name: str) -> None:
    spec = CHARTS[name]().to_dict(validate=False)
    # Those that dark pages exchange.
    readable = {LIGHT.ink, LIGHT.muted, LIGHT.peak}
    fixed = {mark["mark"].get("color") for mark in marks(spec) if mark["mark"]["type"] == "text"}
    rows = [row for rows in spec["datasets"].values() for row in rows if {"colour", "text"} <= row.keys() - {"x2"}]
    by_row = {row["colour"] for row in rows if "x2" not in row}
    # Text that lies on fills has their colours.
    assert fixed | by_row <= readable | {theme.ON_LIGHT, theme.ON_DARK, None} and fixed | by_row
    assert spec["background"] == LIGHT.paper and spec["config"]["axis"]["labelColor"] == LIGHT.muted
    assert all(f'[fill="{colour}"]' in theme.dark_rules() for colour in (*readable, LIGHT.paper))


@pytest.mark.parametrize(
    ("drawn", "words"),
    [
        (lambda: timeline.timeline_chart(LIMITED), "memory limit 150.0 MiB"),
        (lambda: parts.peak_parts({"bars": [{**PARTS[0], "budget_bytes": 100 << 20}]}), "budget 100.0 MiB"),
        (lambda: placement_map({**samples.plan(300), "capacity_bytes": 800 << 20}), "capacity"),
        (lambda: curves.fit_chart({**samples.fit(), "answer": samples.fit()["answers"][0]}), "budget 140.0 MiB"),
        (lambda: bars.strategies(samples.estimate()["activations"]), "lower bound 8.0 MiB"),
    ],
)
def test_a_limit_is_drawn_where_there_is_one(drawn: Callable[[], Any], words: str) -> None:
    assert words in str(drawn().to_dict(validate=False)).replace("\\n", " ")


def test_what_is_not_exact_is_drawn_thin_and_without_a_dot() -> None:
    document = samples.fit()
    for mode in document["answers"][0]["modes"]:
        mode["points"][1]["exact"] = False
    spec = curves.fit_chart({**document, "answer": document["answers"][0]}).to_dict(validate=False)
    lines = [layer for layer in spec["layer"] if layer["mark"]["type"] == "line"]
    sure, unsure = (spec["datasets"][line["data"]["name"]] for line in lines)
    assert lines[1]["mark"]["strokeDash"] == [2, 3] and {row["x"] for row in unsure} == {1, 8, 12} and not sure
    dots = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "point")
    assert {row["x"] for row in spec["datasets"][dots["data"]["name"]]} == {1, 12}


def test_a_limit_far_beyond_is_named_but_flattens_nothing() -> None:
    far = {**LIMITED, "memory_limit": {"bytes": 1 << 40, "enforced_by": "cgroup"}}
    spec = timeline.timeline_chart(far).to_dict(validate=False)
    assert "memory limit 1.0 TiB, beyond this scale" in str(spec)
