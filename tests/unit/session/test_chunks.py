"""With a budget, a batch runs a few rows at a time: the same bits, in less memory; or it says what cannot be."""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto

from onnxmem import BudgetExceeded, InferenceSession, UsageError, zoo
from onnxmem.session.memory import SessionMemory
from tests.unit.rewriting.texts import feeds, model, same, session

MIB = 2**20


def budgeted(proto: ModelProto, budget: Any, threads: int = 1, **more: Any) -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    return InferenceSession(proto.SerializeToString(), options, budget=budget, **more)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("network", "rows", "sizes", "budget"),
    [
        ("mobilenet", 16, {"height": 64, "width": 64}, "2MiB"),
        ("shufflenet", 13, {"height": 64, "width": 64}, "1MiB"),
        ("transformer", 16, {"sequence": 32}, "3MiB"),
    ],
)
def test_a_batch_runs_within_the_budget(
    network: str, rows: int, sizes: dict[str, int], budget: str, threads: int
) -> None:
    proto = zoo.build(network, **({"layers": 1, "vocabulary": 50} if network == "transformer" else {}))
    fed = feeds(proto, batch=rows, **sizes)
    expected, limited = session(proto, threads).run(None, fed), budgeted(proto, budget, threads)
    for _ in range(3):
        assert same(limited.run(None, fed), expected)
    memory = limited.memory
    (batch,) = memory.batches
    assert batch.needed <= memory.budget and batch.runs == 3 and batch.rows == rows
    assert batch.rows_at_once * batch.parts >= rows > batch.rows_at_once > 2
    assert memory.arena_bytes + expected[0].nbytes <= memory.budget
    # The third size and others were never recorded: they follow from the first two.
    assert (memory.runs_recorded, memory.runs_deviated, memory.runs_from_heap) == (2, 0, 0)
    assert SessionMemory.from_document(memory.document()) == memory


def test_what_fits_is_not_split() -> None:
    proto = zoo.build("mobilenet")
    limited, fed = budgeted(proto, "64MiB"), feeds(proto, batch=8, height=64, width=64)
    assert same(limited.run(None, fed), session(proto).run(None, fed))
    limited.run(None, fed)
    assert limited.memory.batches[0].runs == 1  # the first, which was to find out


def test_a_plan_for_all_rows_is_followed_only_if_it_fits() -> None:
    proto, fed = wide()
    plain = budgeted(proto, None)
    plain.run(None, fed)
    for budget, parts in (("1MiB", 1), ("64MiB", 0)):
        limited = budgeted(proto, budget, plans=plain.export_plans())
        assert same(limited.run(None, fed), session(proto).run(None, fed))
        assert len(limited.memory.batches) == parts


def wide(rows: int = 12) -> tuple[ModelProto, dict[str, Any]]:
    """An MLP that is wider inside than at its ends."""
    proto = model("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", "float[n, 64, 32] x", w=(32, 1024), v=(1024, 16))
    return proto, feeds(proto, n=rows)


def test_a_plan_for_the_whole_batch_is_no_leave_to_run_it() -> None:
    proto, fed = wide()
    whole = budgeted(proto, None)
    expected = whole.run(None, fed)
    limited = budgeted(proto, "1MiB", plans=whole.export_plans())
    assert same(limited.run(None, fed), expected)
    assert limited.memory.batches[0].needed <= MIB < whole.memory.plan_bytes


def test_a_budget_that_cannot_be_met_says_the_least_that_is_possible() -> None:
    proto, fed = wide()
    with pytest.raises(BudgetExceeded, match=r"a batch of 12 takes .* even 1 row at a time") as refused:
        budgeted(proto, "100KiB").run(None, fed)
    (least,) = re.findall(r"possible is ([\d.]+) KiB", refused.value.hint)
    enough = budgeted(proto, f"{float(least) + 0.1}KiB")
    assert same(enough.run(None, fed), session(proto).run(None, fed))
    assert enough.memory.batches[0].rows_at_once == 1
    with pytest.raises(BudgetExceeded):
        budgeted(proto, f"{float(least) - 0.1}KiB").run(None, fed)


@pytest.mark.parametrize("rows", [2, 3, 5, 7, 12, 31])
def test_any_number_of_rows(rows: int) -> None:
    proto, fed = wide(rows)
    limited, expected = budgeted(proto, "2MiB"), session(proto).run(None, fed)
    for _ in range(2):
        assert same(limited.run(None, fed), expected)
    assert limited.memory.plan_bytes <= 2 * MIB


def test_numbers_of_rows_take_turns() -> None:
    proto, limited, reference = wide()[0], budgeted(wide()[0], "2MiB"), session(wide()[0])
    for rows in (1, 9, 2, 30, 4, 9, 1, 17):
        fed = feeds(proto, seed=rows, n=rows)
        assert same(limited.run(None, fed), reference.run(None, fed))
    assert limited.memory.arena_bytes <= 2 * MIB


def test_few_rows_that_would_be_computed_differently_are_computed_with_others() -> None:
    # A mean over the first of two axes is another loop than one over the second of three: single rows will not do.
    proto = model("m = ReduceMean(x, a) y = Sub(x, m)", "float[n, 40, 16] x", a=np.array([1]))
    fed = feeds(proto, n=3)
    limited = budgeted(proto, 3 * 40 * 64 + 150)
    assert same(limited.run(None, fed), session(proto).run(None, fed))
    (batch,) = limited.memory.batches
    assert (batch.rows_at_once, batch.parts) == (2, 2)


def test_parts_that_may_be_rounded_otherwise_are_taken_if_that_is_allowed() -> None:
    proto = model("m = ReduceMean(x, a) y = Sub(x, m)", "float[n, 40, 16] x", a=np.array([1]))
    fed = feeds(proto, n=3)
    tight = 3 * 40 * 64 + 70
    with pytest.raises(BudgetExceeded):
        budgeted(proto, tight).run(None, fed)
    limited = budgeted(proto, tight, exact=False)
    (got,), (expected,) = limited.run(None, fed), session(proto).run(None, fed)
    assert np.allclose(got, expected, rtol=1e-5, atol=1e-6)
    (batch,) = limited.memory.batches
    assert (batch.rows_at_once, batch.parts) == (1, 3)


def test_outputs_of_every_kind_come_out() -> None:
    proto = model(
        "a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) t = Transpose<perm = [1, 0, 2]>(y) i = ArgMax<axis = 2>(y) "
        "s = Sqrt(p) m = Reshape(y, flat)",
        "float[n, 64, 32] x", "y, t, int64[] i, s, m",
        w=(32, 1024), v=(1024, 16), p=np.ones(3, np.float32), flat=np.array([-1, 16]),
    )  # fmt: skip
    fed, reference = feeds(proto, n=9), session(proto)
    limited = budgeted(proto, "1.5MiB")
    for names in (None, ["m", "i"], ["s", "t"], ["y"], ["t", "i", "t", "i"]):
        assert same(limited.run(names, fed), reference.run(names, fed))
    assert len(limited.memory.batches) == 5


def test_an_output_that_is_an_input_comes_out() -> None:
    proto = model("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", "float[n, 32] x", "x, y", w=(32, 4096), v=(4096, 16))
    fed = feeds(proto, n=64)
    limited = budgeted(proto, "512KiB")
    # Twice: memory that nobody has written to may hold the right numbers by chance.
    for _ in range(2):
        assert same(limited.run(None, fed), session(proto).run(None, fed))
        fed = {"x": fed["x"] + 1}
    assert limited.memory.batches[0].parts > 1


@pytest.mark.parametrize("declared", [(1, 16), (9, 16), ("n", 16), ()])
def test_what_a_file_says_of_its_outputs_may_be_wrong(declared: tuple[int | str, ...]) -> None:
    proto = model("a = MatMul(x, w) b = Relu(a) y = MatMul(b, v)", "float[n, 32] x", w=(32, 4096), v=(4096, 16))
    for each in declared:
        dim = proto.graph.output[0].type.tensor_type.shape.dim.add()
        if isinstance(each, str):
            dim.dim_param = each
        else:
            dim.dim_value = each
    fed = feeds(proto, n=64)
    limited = budgeted(proto, "512KiB")
    assert same(limited.run(None, fed), session(proto).run(None, fed))
    assert limited.memory.batches[0].parts > 1


def test_outputs_whose_shape_depends_on_data_come_out() -> None:
    proto = model(
        "a = MatMul(x, w) b = Relu(a) y = MatMul(b, v) z = Expand(y, e)",
        "float[n, 64, 32] x, int64[1] e", "y, z", w=(32, 1024), v=(1024, 1),
    )  # fmt: skip
    fed = {**feeds(proto, n=9), "e": np.array([5])}
    limited = budgeted(proto, "1.5MiB")
    assert same(limited.run(None, fed), session(proto).run(None, fed))
    assert limited.memory.batches[0].parts > 1


def test_a_batch_whose_rows_mix_is_run_whole_or_refused() -> None:
    proto = model(
        "a = MatMul(x, w) b = Softmax<axis = 0>(a) y = MatMul(b, v)", "float[n, 32] x", w=(32, 512), v=(512, 8)
    )
    fed = feeds(proto, n=100)
    enough = budgeted(proto, "1MiB")
    assert same(enough.run(None, fed), session(proto).run(None, fed))
    assert "Softmax" in enough.memory.unsplit and not enough.memory.batches
    limited = budgeted(proto, "100KiB")
    for _ in range(2):  # once it has been found out, and from then on before anything is run
        with pytest.raises(BudgetExceeded, match=r"the batch cannot be split: Softmax"):
            limited.run(None, fed)
    assert limited.memory.runs_recorded == 1 and limited.memory.runs_replayed == 0


def test_one_row_that_takes_more_is_refused() -> None:
    proto, fed = wide(1)
    with pytest.raises(BudgetExceeded, match="a single row"):
        budgeted(proto, "100KiB").run(None, fed)


@pytest.mark.parametrize("budget", ["much", "-1MiB", 0, -5, True, 1.5, ""])
def test_what_is_no_budget_is_refused(budget: Any) -> None:
    with pytest.raises(UsageError):
        budgeted(wide()[0], budget)


def test_a_budget_is_for_planned_sessions() -> None:
    with pytest.raises(UsageError, match="budget= is for planned runs"):
        budgeted(wide()[0], "1MiB", mode="stock")


def test_wrong_feeds_are_refused_as_ever() -> None:
    proto, fed = wide()
    limited = budgeted(proto, "2MiB")
    for wrong in ({"x": fed["x"].astype(np.float64)}, {"z": fed["x"]}, {"x": fed["x"][0]}, {}):
        with pytest.raises(Exception, match=r"(?i)input|name|rank") as found:
            limited.run(None, wrong)
        assert not isinstance(found.value, BudgetExceeded)
    with pytest.raises(Exception, match="nothing"):
        limited.run(["nothing"], fed)


@pytest.mark.parametrize("names", ["y", "yy", b"y", {"y": None}, 5, ["y", 5], ["y", "z"], ("y", None)])
def test_what_are_no_names_of_outputs_is_refused_as_by_a_session_without_a_budget(names: Any) -> None:
    proto, fed = wide()
    with pytest.raises(Exception, match=r".") as stock:
        session(proto).run(names, fed)
    limited = budgeted(proto, "1MiB")
    for _ in range(2):
        with pytest.raises(stock.type):
            limited.run(names, fed)
    assert not limited.memory.batches
    lists: list[Any] = [("y",), {"y"}, iter(["y"]), np.array(["y"]), [], ""]
    for right in lists:
        assert same(limited.run(right, fed), session(proto).run(["y"], fed))


def test_a_session_that_is_made_again_keeps_its_budget() -> None:
    proto, fed = wide()
    limited = budgeted(proto, "2MiB")
    limited.set_providers(["CPUExecutionProvider"])
    assert same(limited.run(None, fed), session(proto).run(None, fed))
    assert limited.memory.batches


def test_threads_run_batches_at_once() -> None:
    proto, limited, reference = wide()[0], budgeted(wide()[0], "2MiB"), session(wide()[0])
    wrong: list[int] = []

    def work(seed: int) -> None:
        for rows in np.random.default_rng(seed).integers(1, 40, 12):
            fed = feeds(proto, seed=seed, n=int(rows))
            if not same(limited.run(None, fed), reference.run(None, fed)):
                wrong.append(int(rows))

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and limited.memory.batches


@settings(max_examples=25, deadline=None)
@given(
    widths=st.lists(st.sampled_from((8, 64, 300)), min_size=1, max_size=4),
    rows=st.integers(2, 20),
    threads=st.sampled_from((1, 2)),
    kib=st.integers(20, 400),
)
def test_whatever_the_budget_it_is_kept_or_refused(widths: list[int], rows: int, threads: int, kib: int) -> None:
    weights: dict[str, Any] = {}
    lines, before = [], 16
    for number, width in enumerate(widths):
        lines.append(f"m{number} = MatMul(a{number}, w{number}) a{number + 1} = Tanh(m{number})")
        weights[f"w{number}"], before = (before, width), width
    proto = model(lines, "float[n, 24, 16] a0", f"a{len(widths)}", **weights)
    fed, limited = feeds(proto, n=rows), budgeted(proto, kib * 1024, threads)
    for _ in range(2):
        try:
            found = limited.run(None, fed)
        except BudgetExceeded:
            continue
        assert same(found, session(proto, threads).run(None, fed))
        peak = max((shape.arena_bytes for shape in limited.memory.shapes), default=0)
        assert peak + found[0].nbytes <= kib * 1024
