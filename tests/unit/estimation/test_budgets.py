"""What it takes to keep runs to a budget, on paper: nothing, rows of a batch, or tiles."""

from __future__ import annotations

import json

import pytest
from onnx import helper

from onnxmem.errors import UsageError
from onnxmem.estimation.budgets import BudgetFacts
from onnxmem.estimation.estimate import Estimate, estimate
from onnxmem.estimation.planning import plan
from onnxmem.model.model import Model
from onnxmem.prediction.chunks import Chunking, largest_chunk
from onnxmem.report.sections import section
from tests.helpers import conv_and_pool, model_of

MIB = 2**20
SHAPES = {"x": (512, 4096)}


def means(rows: int | str) -> Model:
    """512 rows of 16 KiB, and the mean of each: 8 MiB are alive at once. Only where their number is free, they are a
    batch."""
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("ReduceMean", ["h"], ["y"], axes=[1])]
    return Model.of(model_of(nodes, {"x": (rows, 4096)}, ["y"], opset=17), "rows.onnx")


def asked(model: Model, budget: str) -> tuple[Estimate, BudgetFacts]:
    found = estimate(model, shapes=SHAPES, budget=budget, strategies=("best",), processes=False)
    assert isinstance(found.budget, BudgetFacts)
    return found, found.budget


def test_what_is_within_the_budget_takes_nothing() -> None:
    _, facts = asked(means("n"), "9MiB")
    assert [step.kind for step in facts.steps] == ["as it is"] and facts.chosen == facts.steps[0] and facts.fits


def test_rows_of_a_batch_come_before_tiles() -> None:
    model = means("n")
    found, facts = asked(model, "3MiB")
    assert [step.kind for step in facts.steps] == ["as it is", "rows"] and facts.chosen == facts.steps[1]
    cut = largest_chunk(model, SHAPES, 3 * MIB)
    assert isinstance(cut, Chunking) and facts.chosen.rows_at_once == cut.rows_at_once
    assert facts.chosen.needed == cut.needed <= 3 * MIB < facts.steps[0].needed
    assert Estimate.from_document(json.loads(json.dumps(found.document()))) == found
    shown = section(found.document())
    fact = next(fact for fact in shown.facts if fact.label == "budget of a run")
    assert not any("least" in fact.label for fact in shown.facts), "nobody looked for it"
    assert f"{cut.rows_at_once} of 512 rows at a time" in fact.about
    assert any(
        "--budget 3MiB" in action.command and action.command.startswith("onnxmem pack") for action in shown.actions
    )


def test_a_package_is_asked_to_keep_to_the_budget_itself() -> None:
    for budget, said in (("3MiB", "3MiB"), (f"{3 * MIB + 1}", f"{3 * MIB + 1}"), ("2.99MiB", "3135242")):
        found, facts = asked(means("n"), budget)
        assert facts.chosen is not None and facts.chosen.kind == "rows"
        assert any(action.command.endswith(f"--budget {said}") for action in section(found.document()).actions)


def test_tiles_where_there_is_no_batch_and_the_least_where_nothing_fits() -> None:
    model = means(512)
    _, facts = asked(model, "4MiB")
    assert facts.chosen is not None and facts.chosen.kind == "tiles" and facts.chosen.nodes > 0
    assert facts.rows is None and facts.unsplit
    found, facts = asked(model, "8KiB")
    assert facts.chosen is None and not facts.fits and facts.least.needed < facts.steps[0].needed
    assert any(fact.label == "least found for a run" for fact in section(found.document()).facts)
    texts = [fact.about for fact in section(found.document()).facts]
    # Nothing is proven: the search for tiles ends after some time.
    assert "nothing was found that needs as little" in texts


def test_every_step_to_the_least_needs_less() -> None:
    found = estimate(conv_and_pool(), budget="least", strategies=("best",), processes=False)
    assert isinstance(found.budget, BudgetFacts) and found.budget.budget is None and found.budget.fits
    sizes = [step.needed for step in found.budget.steps]
    assert len(sizes) > 2 and sizes == sorted(set(sizes), reverse=True)
    assert found.budget.least == found.budget.steps[-1]
    table = next(table for table in section(found.document()).tables if table.title == "What it costs to need less")
    assert len(table.rows) == len(sizes)


def test_a_budget_is_about_the_graph_that_runs() -> None:
    with pytest.raises(UsageError, match="a budget is for the graph as ONNX Runtime runs it"):
        estimate(means("n"), shapes=SHAPES, budget="3MiB", view="raw")


def test_a_capacity_gets_as_many_tiles_as_it_takes_and_no_more() -> None:
    model = conv_and_pool()
    whole, half, most = (plan(model, tile=True, capacity=size) for size in (2 * MIB, MIB * 3 // 4, None))
    assert whole.tiling is not None and not whole.tiling.parts and whole.fits
    assert half.tiling is not None and half.tiling.parts and half.fits
    assert most.tiling is not None and most.tiling.nodes > half.tiling.nodes
    assert {row.kind for row in half.placement or ()} >= {"stripe", "output"}
