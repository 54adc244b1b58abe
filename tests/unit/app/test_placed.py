from __future__ import annotations

from typing import Any

import onnxmem
from onnxmem import zoo
from onnxmem.app.placed import Placed
from onnxmem.model.model import Model
from onnxmem.placement.problem import Buffer, Problem
from tests.unit.report import samples


def of(document: dict[str, Any]) -> Placed:
    placed = Placed.of(document)
    assert placed is not None
    return placed


def test_a_plan_is_explored_step_by_step() -> None:
    document = samples.plan(40)
    placed = of(document)
    assert max(placed.live) == placed.live[placed.peak_step] == document["lower_bound_bytes"]
    assert placed.top == document["peak_bytes"]
    every = placed.steps()
    assert [step["step"] for step in every] == list(range(len(placed.live)))
    assert [step["step"] for step in placed.steps((3.4, 7.6))] == [3, 4, 5, 6, 7]
    assert placed.steps((-5, 1e9)) == every


def test_what_lies_in_the_place_of_another_takes_nothing_while_that_is_there() -> None:
    buffers = [Buffer("a", 0, 3, 4096), Buffer("b", 2, 6, 4096), Buffer("c", 5, 9, 1024)]
    planned = onnxmem.plan(Problem.of(buffers, shares=[(0, 1), (1, 2)]))
    assert of(planned.document()).live == [4096] * 6 + [1024] * 3


def test_a_window_around_the_peak_holds_it_and_little_else() -> None:
    placed = of(samples.plan(400))
    window = placed.around_peak()
    assert window is not None and window[0] <= placed.peak_step < window[1]
    assert window[1] - window[0] <= len(placed.live) / 10
    assert of(samples.plan(3)).around_peak() is None


def test_every_node_of_a_model_has_its_step_even_if_it_makes_no_buffer() -> None:
    model = zoo.build("transformer") if "transformer" in zoo.MODELS else zoo.build("bert")
    document = onnxmem.estimate(Model.of(model), view="raw", processes=False).document()
    placed = of(document)
    steps = placed.steps()
    assert len(placed.schedule) == document["steps"] and all(step["node"] and step["op"] for step in steps)
    idle = next(step for step in steps if not step["makes"])
    tensor = placed.tensor_of(idle["step"], idle["node"])
    assert tensor is not None and idle["node"] in placed.rows[tensor]["consumers"]
    busy = next(step for step in steps if step["makes"])
    tensor = placed.tensor_of(busy["step"], busy["node"])
    assert tensor is not None and placed.rows[tensor]["producer"] == busy["node"]


def test_names_are_found_in_any_case_and_by_their_makers() -> None:
    document = samples.plan(20)
    document["placement"][4] |= {"name": "Encoder/Gelu", "producer": "Erf_7"}
    placed = of(document)
    assert placed.found("encoder/") == placed.found("erf_7") == 1 and placed.found("nowhere") == 0
    assert [step["step"] for step in placed.steps(search="gelu")] == [document["placement"][4]["lower"]]


def test_a_document_without_a_list_of_buffers_has_no_map() -> None:
    assert Placed.of(samples.plan(5) | {"placement": None}) is None
