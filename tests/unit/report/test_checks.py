"""What a check and a history say to a reader."""

from __future__ import annotations

from onnxmem.report.build import make_report
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.report.sections.history import trend
from tests.unit.checking.samples import checked, checking
from tests.unit.report import samples


def test_one_check_is_its_sentence_and_its_figures() -> None:
    (section,) = make_report([checking(checked())]).sections
    assert section.heading == "net.onnx in mode stock, checked" and not section.alarm
    assert section.summary.endswith("its peak RSS is 100.0 MiB of 120.0 MiB.")
    assert [fact.label for fact in section.facts] == ["peak RSS", "budget", "latency"]
    assert section.facts[1].about == "20.0 MiB are left, 83.3% of it is taken"


def test_several_are_a_table() -> None:
    (section,) = make_report([samples.check()]).sections
    assert section.alarm and section.summary == "1 of 2 checks did not pass: 1 over budget."
    (table,) = section.tables
    assert [row[-1].text for row in table.rows] == ["ok", "over budget"]
    assert [row[4].text for row in table.rows] == ["20.0 MiB", "-20.0 MiB"]
    assert (
        "saves 70.0 MiB" in f"saves {section.actions[0].saving}" and "--mode model.onnx" in section.actions[0].command
    )
    assert section.charts[0].kind == "peak parts"
    (fine,) = make_report([samples.check(over=-1)]).sections
    assert fine.summary == "All 2 are within their budgets." and not fine.actions and not fine.charts


def test_a_check_that_failed_is_a_row_with_its_reason() -> None:
    (section,) = make_report([checking(checked(), checked(None, failure="it died", hint="try again"))]).sections
    assert "1 failed" in section.summary and any("could not be checked: it died" in said for said in section.story)
    assert any("try again" in note for note in section.notes)


def test_a_history_tells_where_it_grew() -> None:
    (section,) = make_report([samples.history()]).sections
    assert section.summary == "2 results of 1 model; memory grew once, last on 2026-11-02."
    assert "grew by 20.0 MiB (25.0%) on 2026-11-02, to 100.0 MiB, with model.onnx" in section.story[0]
    assert section.tables[0].rows[0][-1].text == "▁█"
    assert [row[0].text for row in section.tables[1].rows] == ["2026-11-02 10:11", "2026-11-01 10:11"]
    assert section.tables[1].rows[0][-1].text == "grew"
    assert section.charts[0].kind == "history"


def test_trends_do_not_make_mountains_of_noise() -> None:
    assert trend([1000, 1001, 1000]) == "▁▁▁"
    assert trend([1, 5, 9]) == "▁▅█" and trend([]) == "" and len(trend(list(range(100)))) == 16


def test_narrow_terminals() -> None:
    for width in (60, 80):
        tiled = {**samples.plan(), "tiling": samples.tiling()}
        documents = (samples.check(), samples.history(), checking(checked()).document(), samples.package(), tiled)
        for document in documents:
            text = render_terminal(make_report([document]), width=width)
            assert max(map(len, text.splitlines())) <= width
