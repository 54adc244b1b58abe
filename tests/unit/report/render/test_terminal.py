"""Reports in a terminal: every width keeps every digit."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_terminal, render_text
from onnxmem.report.report import Cell, Report, Section, Table
from tests.unit.report import samples

_LONG = "/model/encoder/layers.11/attention/self/query/MatMul_output_0_quantized"


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("name", ["model.onnx", _LONG])
def test_no_number_is_cut_and_no_line_too_long(width: int, name: str) -> None:
    report = make_report(samples.all_of_them(name))
    text = render_terminal(report, width=width)
    assert max(map(cell_len, text.splitlines())) <= width
    for section in report.sections:
        for fact in section.facts:
            assert re.search(rf"(?<![\d.]){re.escape(fact.cell.text)}(?!\w)", text)
        for table in section.tables:
            for row in table.rows[: 12 if table.folded else None]:
                for cell in row[1:]:
                    in_mib = f"{(cell.value or 0) / 2**20:.1f}" if cell.unit == "bytes" else ""
                    assert (
                        cell.value is None or cell.text in text or (in_mib in text and f"{table.title} (MiB)" in text)
                    )


def test_columns_that_do_not_fit_stand_below_with_their_names() -> None:
    share = samples.share()
    for group in share["modes"]:
        group |= {"load_cold_seconds": 1.25, "first_run_seconds": 0.5}
    share["latency"] = [{"mode": "stock", "of_baseline": 1.125}]
    text = render_terminal(make_report([share]), width=60)
    assert len(re.findall(r"(?m)^mode .*", text)) >= 3
    assert "1.25 s" in text


def test_a_column_of_long_names_leaves_room_for_the_others() -> None:
    row = (Cell("n" * 90), Cell("[batch, 128]"), Cell("512*batch*((length + 64)//128) - 516*batch"))
    table = Table("Largest tensors for any size", ("tensor", "shape", "bytes"), (row,))
    text = render_terminal(Report("", (Section("", "", tables=(table,)),)), width=100)
    assert "[batch, 128]" in text and "((length + 64)//128)" in text


def test_colours_change_no_word() -> None:
    report = make_report(samples.all_of_them())
    coloured = re.sub("\x1b\\[[0-9;]*m", "", render_terminal(report, width=80, colour=True))
    plain = render_terminal(report, width=80)
    assert _words(coloured) == _words(plain)
    assert "\x1b" not in plain and "\x1b" not in render_text(report)


def test_what_rounds_to_nothing_is_not_nothing() -> None:
    measured = samples.measure()
    measured["phases"][0]["file_bytes"] = 3
    assert "< 0.1" in render_terminal(make_report([measured]), width=80)


def test_an_empty_table_or_report_is_no_error() -> None:
    assert render_terminal(Report("nothing", ()), width=80).strip() == ""
    assert not Table("empty", ("a",), ()).numeric(0)


def _words(text: str) -> list[str]:
    """All but maps and the rules below headings."""
    return [line.rstrip() for line in text.splitlines() if not re.search("[─│┤└]|^\\s*$", line)]
