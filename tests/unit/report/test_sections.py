"""What each section says: comparisons that hold, plans and limits, parts that add up, and the next command."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onnxmem.errors import UsageError
from onnxmem.estimation.planning import plan
from onnxmem.measurement.parts import parts_of
from onnxmem.placement.problem import Buffer, Problem
from onnxmem.report.build import make_report
from onnxmem.report.render.to_html import render_html
from onnxmem.report.render.to_terminal import render_text
from onnxmem.report.report import Action, Cell, Chart, Fact, Section, Table
from onnxmem.report.sections import printable_texts
from onnxmem.report.sections.forecast import forecast_notes
from tests.unit.report import samples


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


def test_a_plan_says_which_buffers_share_places_and_what_that_saves() -> None:
    buffers = [Buffer("a", 0, 3, 4096), Buffer("b", 2, 6, 4096), Buffer("c", 5, 9, 1024)]
    for pairs, fact in (
        ([(0, 1), (1, 2)], "shared places 2 of 2 pairs save at least 4.0 KiB; 8.0 KiB or more without"),
        ([(1, 2)], "shared places 1 of 1 pair 8.0 KiB or more without"),
        ([], ""),
    ):
        document = plan(Problem.of(buffers, shares=pairs)).document()
        report = make_report([document])
        text = " ".join(render_text(report).split())
        assert fact in text and ("share" in text) == ("written over" in text) == bool(pairs)
        assert len(report.sections[0].facts) == 4
        last = {row[0].text: row[-1].text for row in report.sections[0].tables[0].rows}
        assert not pairs or last == {"a": "", "b": "a" if len(pairs) == 2 else "", "c": "b"}


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


def test_a_limit_that_counts_reserved_memory_is_said_to_do_so() -> None:
    def summary(by: str, size: int) -> str:
        limit = {"memory_limit": {"bytes": size, "enforced_by": by}}
        return make_report([{**samples.measure(kind="out of memory"), **limit}]).sections[0].summary

    why = "(100.0 MiB were resident: RLIMIT_DATA counts memory that is reserved but not used, too)"
    assert why in summary("RLIMIT_DATA", 200 * samples.MIB)
    assert "reserved" not in summary("RLIMIT_DATA", 101 * samples.MIB)
    assert "reserved" not in summary("cgroup memory.max", 200 * samples.MIB)


def test_a_peak_far_above_a_limit_is_no_percentage() -> None:
    limit = {"memory_limit": {"bytes": 1, "enforced_by": "RLIMIT_DATA"}}
    facts = make_report([{**samples.measure(kind="out of memory"), **limit}]).sections[0].facts
    assert any(fact.about.startswith("the peak is more than 10 times it;") for fact in facts)


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


@pytest.mark.parametrize(("verdict", "words"), [("winner", "59.9% less"), ("undecided", "undecided")])
def test_a_comparison_promises_nothing_that_is_undecided(verdict: str, words: str) -> None:
    document = samples.compare()
    document["rows"].append({**document["rows"][1], "metric": "peak memory", "size": "512", "verdict": verdict})
    summary = make_report([document]).sections[0].summary
    assert summary.startswith(f"Peak memory at 512: 80.2 MiB model.onnx, 200.2 MiB factory:net ({words}).")


@pytest.mark.parametrize(
    ("verdict", "tied", "words"),
    [
        ("winner", [], "80.2 MiB model.onnx, 200.2 MiB factory:net (59.9% less)"),
        (
            "same",
            ["model.onnx", "mid"],
            "80.2 MiB model.onnx (mid: about the same), 200.2 MiB factory:net (59.9% less)",
        ),
        ("undecided", ["model.onnx", "mid"], "model.onnx (mid: undecided), 200.2 MiB factory:net (59.9% less)"),
        ("same", ["model.onnx", "mid", "factory:net"], "80.2 MiB model.onnx, 200.2 MiB factory:net (about the same)"),
    ],
)
def test_what_is_about_the_same_is_not_said_of_the_third(verdict: str, tied: list[str], words: str) -> None:
    document = samples.compare()
    least, most, *others = document["candidates"]
    points = [{**point, "peak_rss_bytes": point["peak_rss_bytes"] + samples.MIB} for point in least["inputs"]]
    document["candidates"] = [least, {**least, "name": "mid", "inputs": points}, most, *others]
    row = {**document["rows"][1], "metric": "peak memory", "size": "512", "verdict": verdict, "tied": tied}
    document["rows"].append(row)
    assert words in make_report([document]).sections[0].summary


@pytest.mark.parametrize(
    ("parity", "words"),
    [
        ({"same": True, "equal": True, "max_abs": None}, "The answers are equal, bit for bit."),
        ({"same": True, "equal": False, "max_abs": 0.0}, "The answers are the same: no number differs."),
        ({"same": True, "max_abs": 2e-7}, "The answers are the same: they differ by at most 2e-07."),
        ({"same": True, "max_abs": None}, "There was nothing to compare the answers with."),
    ],
)
def test_answers_that_do_not_differ_are_equal(parity: dict[str, Any], words: str) -> None:
    assert words in make_report([{**samples.compare(), "parity": parity}]).sections[0].summary


def test_the_answer_of_a_comparison_says_who_is_missing() -> None:
    document = samples.compare()
    for same in (True, False):
        section = make_report([{**document, "parity": {"same": same, "max_abs": 1.0}}]).sections[0]
        assert section.summary.endswith(". lost could not be measured: see below.")
    document["candidates"][-1]["failure"] = "'lost' returned an int"
    section = make_report([document]).sections[0]
    assert "Not measured: 'lost' returned an int" in section.notes


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


def test_commands_name_the_model_as_it_was_typed() -> None:
    typed = "onnxmem estimate nets/model.onnx --shape=x=1x3 --dim=n=2"
    document = {**samples.plan(), "model": "model.onnx", "view": "optimized", "nodes": 1, "order": "given"}
    commands = [each.command for each in make_report([{**document, "command": typed}]).sections[0].actions]
    assert "onnxmem measure nets/model.onnx --shape=x=1x3 --dim=n=2 --mode planned" in commands

    def one(mode: str, growth: int) -> dict[str, Any]:
        found = samples.measure(mode, growth)
        return {**found, "scenario": {**found["scenario"], "model": 'my nets/"model".onnx'}}

    (run, *_) = make_report([one("stock", 40 * samples.MIB), one("planned", 1)]).sections[0].actions
    assert run.command == 'onnxmem.InferenceSession("my nets/\\"model\\".onnx", mode="planned")'
    (package,) = make_report([{**samples.package(), "folder": "my packs/a"}]).sections
    assert package.actions[1].command == "onnxmem share 'my packs/a'"


def test_a_trace_says_what_was_written_and_what_is_not_in_it() -> None:
    asked = make_report([{**samples.trace(), "command": "onnxmem trace model.onnx"}]).sections[0]
    assert asked.actions[-1].command == "onnxmem trace model.onnx -o trace.csv" and "Written" not in str(asked.notes)
    assert asked.facts[0].about == "at most; for these requests no plan takes less, unless two of them share a place"
    assert asked.facts[2].about == "1 buffer of these, in use beyond the run: in no plan"
    for option in ("-o my.csv", "--output=my.csv"):
        written = make_report([{**samples.trace(), "command": f"onnxmem trace model.onnx {option}"}]).sections[0]
        assert written.actions[-1].command == "onnxmem plan my.csv"
        assert "Written: my.csv, with the 4 buffers that a plan places; --outputs adds the outputs." in written.notes
    every = {**samples.trace(), "command": "onnxmem trace model.onnx -o my.csv --outputs"}
    assert "Written: my.csv, with all of them." in make_report([every]).sections[0].notes


def test_weights_that_are_not_told_apart_are_in_the_heap() -> None:
    def heap(**known: int) -> str:
        document = samples.measure()
        document["runtime"] = {**document["runtime"], "weights_bytes": None, "packed_bytes": None, **known}
        table = next(t for t in make_report([document]).sections[0].tables if t.title == "The parts of the peak")
        return next(row[-1].text for row in table.rows if row[0].text == "heap")

    rest = "the rest: Python, inputs, the session, freed memory"
    assert heap(weights_bytes=1, packed_bytes=1) == rest
    assert heap() == f"{rest}, and weights and packed copies where these are ?"


def test_a_written_network_is_named_as_a_shell_takes_it() -> None:
    written = {"schema": "onnxmem.zoo/1", "model": "unet", "path": "my nets/u.onnx", "bytes": 2 * samples.MIB}
    (section,) = make_report([written]).sections
    assert section.summary == "my nets/u.onnx holds unet with random weights: 2.0 MiB."
    assert section.actions[0].command == "onnxmem estimate 'my nets/u.onnx'"


def test_without_a_budget_a_fitting_shows_what_sizes_take() -> None:
    document = {**samples.fit(), "budget_bytes": None, "unknown_tensors": []}
    (answer,) = document["answers"]
    for mode in answer["modes"]:
        mode.update(size=None, holds=None, bytes=None, workers=None, gaps=[])
        mode.pop("verified", None)
    answer["modes"][0]["points"][1]["exact"] = False
    section = make_report([document]).sections[0]
    planned = "planned 83.0 MiB at 1 to 116.0 MiB at 12"
    assert section.summary == f"Predicted memory by model.onnx: stock 86.0 MiB at 1 to 152.0 MiB at 12, {planned}."
    assert [fact.cell.text for fact in section.facts] == ["152.0 MiB", "116.0 MiB"]
    (table,) = section.tables
    assert table.rows[1][1].text == "~128.0 MiB" and table.rows[1][2].text == "104.0 MiB"
    assert any("time limit was over" in note for note in section.notes) and not section.alarm
    shown = render_text(make_report([document]), width=80)
    assert "152.0 MiB at 12" in shown and "none" not in shown


def _predicted_fit(**changed: Any) -> dict[str, Any]:
    document = {**samples.fit(), "unknown_tensors": [], **changed}
    for mode in document["answers"][0]["modes"]:
        mode.pop("verified", None)
    return document


def test_a_limit_is_recommended_only_for_what_was_seen_to_hold_under_it() -> None:
    predicted = make_report([_predicted_fit()]).sections[0].actions
    assert [action.command for action in predicted] == [
        "onnxmem measure model.onnx --mode planned --dim model.onnx=12 --dim height=64",
        "onnxmem fit model.onnx --budget 140MiB --verify",
    ]
    assert "reserved memory" in predicted[-1].text
    (held,) = make_report([samples.fit()]).sections[0].actions
    assert held.command.endswith("--dim height=64 --memory-limit 140MiB")
    together = make_report([_predicted_fit(workers=4)]).sections[0].actions
    assert together[-1].command == "onnxmem fit model.onnx --budget 140MiB --workers 4 --verify"


def test_what_one_range_lets_in_is_run_with_the_others_at_their_beginning() -> None:
    (answer,) = _predicted_fit()["answers"]
    other = {**answer, "axis": {"names": ["rows", "columns"], "start": 96, "stop": 640, "step": 32}}
    unasked = {**answer, "axis": {"names": ["width"], "start": 32, "stop": None, "step": 32}}
    section = make_report([_predicted_fit(answers=[answer, other, unasked])]).sections[0]
    first, second, *_ = (action.command for action in section.actions)
    assert first.endswith("--mode planned --dim model.onnx=12 --dim rows=96 --dim columns=96 --dim height=64")
    assert second.endswith("--mode planned --dim rows=12 --dim columns=12 --dim model.onnx=1 --dim height=64")
    stay = "the other ranges stay at their beginning"
    assert f"While model.onnx grows, {stay}: rows 96 and columns 96." in section.notes
    assert not any(stay in note for note in make_report([samples.fit()]).sections[0].notes)


def test_workers_fit_at_the_smallest_size_or_as_it_is() -> None:
    for names, where in (["batch"], "at batch 1"), ([], "as it is"):
        document = _predicted_fit()
        document["answers"][0]["axis"]["names"] = names
        facts = {fact.label: fact.about for fact in make_report([document]).sections[0].facts}
        assert facts["workers that fit"] == f"stock, {where}, sharing what they can"


def test_what_held_stands_beside_its_size() -> None:
    section = make_report([samples.fit()]).sections[0]
    assert section.tables[0].columns[1:3] == ("largest", "predicted")
    stock, planned = section.tables[0].rows
    assert [cell.text for cell in planned[1:3]] == ["12", "116.0 MiB"] and planned[-1].text == "118.0 MiB, 2 attempts"
    assert stock[-1].text == ""
    assert "planned, model.onnx 14 did not hold: out of memory (it counts reserved memory, too)." in section.notes


def test_a_fitting_without_tensors_of_unknown_size_says_so_first_and_offers_nothing_that_may_not_run() -> None:
    section = make_report([_predicted_fit(unknown_tensors=["a"])]).sections[0]
    assert "by the tensors whose size is known: at most 8 as it is, 12 planned (+50%)." in section.summary
    (action,) = section.actions
    assert action.text.endswith("--dim width=N") and not action.command
    told = make_report([_predicted_fit(unknown_tensors=["a"], assumed={})]).sections[0]
    assert len(told.actions) == 2 and "at most" in told.summary
    assert "at most" not in make_report([samples.fit()]).sections[0].summary


def _forecast(mode: str, peak: int) -> dict[str, Any]:
    grown = {f"{which}run_growth_bytes": samples.MIB for which in ("", "least_", "most_")}
    sizes = {f"{when}_bytes": peak * samples.MIB for when in ("load_peak", "loaded", "steady", "peak")}
    return {"mode": mode, "total_pss_bytes": {"4": 4 * peak * samples.MIB}, "parts": [], **sizes, **grown}


def _estimate(unknown: list[Any], **peaks: int) -> dict[str, Any]:
    document = samples.estimate()
    document["activations"]["unknown"] = unknown
    return {**document, "processes": [_forecast(mode, peak) for mode, peak in peaks.items()]}


def test_an_estimate_recommends_what_takes_least_and_nothing_that_saves_nothing() -> None:
    (section,) = make_report([_estimate([], stock=82, planned=84, mapped=76, external=76)]).sections
    assert section.summary.startswith(
        "The process will peak at 82.0 MiB as ONNX Runtime comes, 84.0 MiB planned, 76.0 MiB external (the least)."
    )
    first = section.actions[0]
    assert (first.saving, first.command) == ("6.0 MiB", "onnxmem pack model.onnx --mode external -o package")
    assert not any("planned" in action.command for action in section.actions)
    (section,) = make_report([_estimate([], stock=100, tuned=90, planned=95)]).sections
    assert [action.command for action in section.actions[:2]] == [
        f"onnxmem measure model.onnx --mode {mode}" for mode in ("tuned", "planned")
    ]
    (section,) = make_report([_estimate([], stock=82, planned=82, tuned=82)]).sections
    assert "82.0 MiB planned." in section.summary
    assert [action.command for action in section.actions] == ["onnxmem plan model.onnx --order best"]


def test_an_estimate_without_tensors_of_unknown_size_proves_nothing() -> None:
    (section,) = make_report([_estimate([{"name": "a", "reason": "data"}], stock=82, planned=80)]).sections
    assert section.summary.startswith("The process will peak at least 82.0 MiB as ONNX Runtime comes, 80.0 MiB")
    assert section.summary.endswith("and at least 8.0 MiB for activations, without 1 tensor of unknown size.")
    assert not any(" measure " in action.command for action in section.actions)
    assert section.actions[0].text.endswith("--dim model.onnx=N")
    planned = make_report([{**samples.plan(), "unknown": [{"name": "a", "reason": "data"}]}]).sections[0]
    assert planned.summary.endswith("without 1 tensor of unknown size.")


def test_sizes_name_their_row_in_one_cell() -> None:
    document = {**samples.estimate(), "table": [{"dims": {"batch": 2, "length": 1024}, "peak_bytes": samples.MIB}]}
    table = next(t for t in make_report([document]).sections[0].tables if t.title == "At other sizes")
    assert table.columns == ("batch, length", "peak of activations") and table.rows[0][0].text == "2, 1024"


def test_growth_that_depends_on_luck_is_said_with_its_range() -> None:
    def notes(least: int) -> str:
        row = {"mode": "stock", "run_growth_bytes": 20 << 20, "most_run_growth_bytes": 24 << 20}
        return " ".join(forecast_notes({"processes": [row | {"least_run_growth_bytes": least << 20}]}))

    assert "about 20.0 MiB, but anything from 2.0 MiB to 24.0 MiB" in notes(2)
    assert "anything" not in notes(22)


def test_a_package_says_what_each_part_gave_and_cost() -> None:
    (section,) = make_report([samples.package()]).sections
    assert section.facts[0].label == "runs need" and section.facts[0].cell.text == "10.0 MiB"
    assert "instead of 40.0 MiB, 0.25×" in section.facts[0].about
    table = section.tables[0]
    assert table.columns == ("part", "gave", "cost")
    assert [[cell.text for cell in row[1:]] for row in table.rows] == [
        ["40.0 MiB", ""],
        ["10.0 MiB less", "nothing"],
        ["20.0 MiB less", "93 more nodes, 2.0% more work"],
        ["10.0 MiB", ""],
    ]


def test_plans_and_estimates_say_what_tiles_give() -> None:
    for sample in (samples.plan, samples.estimate):
        (section,) = make_report([{**sample(), "tiling": samples.tiling()}]).sections
        fact = next(fact for fact in section.facts if fact.label == "alive at once, tiled")
        assert fact.cell.text == "10.0 MiB"
        assert fact.about == "0.25× of 40.0 MiB; 56 → 149 nodes, 2.0% more work"
        table = next(table for table in section.tables if table.title == "In pieces")
        assert [cell.text for cell in table.rows[0]] == ["8 stripes", "12", "conv_in", "conv_out", "30.0 MiB", "2.0%"]


@pytest.mark.parametrize("row", [{"name": 7, "size_bytes": 1}, {}, 7])
def test_a_damaged_result_is_refused_in_a_sentence(row: Any) -> None:
    damaged = {**samples.plan(), "placement": [row]}
    for render in (render_html, render_text):
        with pytest.raises(UsageError, match="this is no result of 'onnxmem plan'"):
            render(make_report([damaged]))


def _text(document: dict[str, Any]) -> str:
    return " ".join(render_text(make_report([document])).split())


def test_an_estimate_for_a_gpu_begins_with_what_it_takes_there() -> None:
    def forecast(mode: str, grown: int, most: int) -> dict[str, Any]:
        parts: list[Any] = [
            {"name": "context", "bytes": 400 * samples.MIB},
            {"name": "weights", "bytes": 100 * samples.MIB},
        ]
        parts += [
            {"name": "libraries", "bytes": 80 * samples.MIB},
            {"name": "activations", "bytes": grown - 80 * samples.MIB},
        ]
        steady = 500 * samples.MIB + grown
        sizes = {"loaded_bytes": 500 * samples.MIB, "run_growth_bytes": grown, "steady_bytes": steady}
        return {"mode": mode, **sizes, "least_steady_bytes": steady, "most_steady_bytes": most, "parts": parts}

    base = {"device": "NVIDIA Played, driver 1", "context": 400 * samples.MIB, "libraries": 80 * samples.MIB}
    modes = [
        forecast("stock", 900 * samples.MIB, 1500 * samples.MIB),
        forecast("planned", 300 * samples.MIB, 800 * samples.MIB),
    ]
    there = {"base": base, "modes": modes, "bound_bytes": 210 * samples.MIB, "not_asked": ["Conv→<b>: it does not run"]}
    text = _text({**samples.estimate(), "processes": None, "device": there})
    assert "On the GPU the process will take 1.4 GiB as ONNX Runtime comes, 800.0 MiB planned." in text
    assert "on the GPU, planned 800.0 MiB of which runs add 300.0 MiB" in text
    assert "alive at once there 210.0 MiB kernels' scratch too; NVIDIA Played, driver 1" in text
    assert "possible are stock 1.4 GiB to 1.5 GiB." in text
    assert "1 node gave no answer, whose scratch is missing" in text
    unknown = {**samples.estimate(), "processes": None, "device": None, "unknown": {"device": "there is none"}}
    assert "What it takes on the GPU is not known: there is none." in _text(unknown)


def test_workers_on_a_gpu_are_compared_by_what_they_take_there() -> None:
    document = samples.share()
    for group, size in zip(document["modes"], range(1000, 9000, 1000), strict=False):
        group["total_device_bytes"] = size * samples.MIB
    text = _text({**document, "device": "cuda"})
    assert "on the GPU" in text
    assert "1000.0 MiB" in text


def test_what_should_be_a_number_is_not_shown_if_it_is_text() -> None:
    compared, estimated = samples.compare(), samples.estimate()
    compared["conditions"] = {**(compared.get("conditions") or {}), "runs": "\x1b[2J"}
    estimated["activations"]["peak"]["step"] = "\u202e"
    for document, key in ((compared, "runs"), (estimated, "step")):
        with pytest.raises(UsageError, match=f"'{key}' is '.*', not a number"):
            make_report([document])


def test_what_a_builder_forgets_is_made_printable_in_every_place() -> None:
    bad = "a\x1b[2J\u202e\n"
    cell = Cell(bad, why=bad)
    made = printable_texts(
        Section(
            bad, bad, (Fact(bad, cell, bad),), (Action(bad, bad, bad),), (bad,), (Chart(bad, bad, bad, {"kept": bad}),),
            (Table(bad, (bad,), ((cell,),)),), (bad,),
        )
    )  # fmt: skip
    assert made.charts[0].document == {"kept": bad}
    assert repr(replace(made, charts=())).count("a�[2J��") == 15 and made.charts[0].alt == "a�[2J��"
