"""Plans of earlier processes: followed from the first run on if they are right, and harmless if they are not."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxmem import InferenceSession
from onnxmem.errors import PlanError
from onnxmem.session.planned import cache
from onnxmem.session.planned import kept as kept_module
from onnxmem.session.planned.kept import KeptPlans
from onnxmem.session.planned.pairs import NOTHING, Sharing, Trust
from onnxmem.session.planned.placing import Placement, follow, place
from onnxmem.session.planned.plan_book import PlanBook
from onnxmem.session.planned.run_key import RunKey
from onnxmem.session.planned.trace import Trace
from tests import small_models
from tests.unit.session.planned.test_sharing import (
    BYTES,
    CHAIN,
    FEEDS,
    SHARES_PLACES,
    _however_small,
    bits,
    model,
    stock,
)

assert _however_small  # used as it is there: everything is worth sharing

ONES = np.eye(64, dtype=np.float32) / 3 + 0.01
MATMULS = model(
    ("Exp", ["x"], "a"), ("MatMul", ["a", "m"], "b"), ("MatMul", ["b", "m"], "c"), ("MatMul", ["c", "m"], "out"), m=ONES
)
SINES = model(("Exp", ["x"], "a"), ("Sin", ["a"], "b"), ("Sin", ["b"], "c"), ("MatMul", ["c", "m"], "out"), m=ONES)
"""Asks for the same, in the same order, and all but the last may write over what they read."""


@pytest.fixture(autouse=True)
def plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and the folder of its plans."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("ONNXMEM_KEEP_PLANS", "1")
    monkeypatch.setattr(kept_module, "_WORTHWHILE", 1)
    return tmp_path / "onnxmem" / "plans"


def started(content: bytes, feeds: Any = FEEDS, runs: int = 2, **extra: Any) -> Any:
    """A session after some runs, each of them right."""
    session = InferenceSession(content, **extra)
    # Optimized as this one is: with AVX-512, blocked convolutions round otherwise than plain ones.
    expected = stock(content, feeds, extra.get("sess_options"))
    assert [bits(session, feeds) for _ in range(runs)] == [expected] * runs
    return session


def counts(session: Any) -> tuple[int, ...]:
    memory = session.memory
    return memory.shapes_kept, memory.runs_recorded, memory.runs_deviated, memory.runs_repeated


def planted(content: bytes, plan: kept_module.KeptPlan, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session that finds this plan in the place of its own."""
    with monkeypatch.context() as patch:
        patch.setattr(KeptPlans, "read", lambda self, key: None if key in self._failed else plan)
        return started(content)


def the_plan(session: Any) -> kept_module.KeptPlan:
    (shape,) = session._planner.book.snapshot()[1]
    return kept_module.KeptPlan(Trace.recorded(shape.tape.trace), shape.placement)


@SHARES_PLACES
def test_a_later_start_shares_at_its_first_run(plans: Path) -> None:
    first = started(CHAIN)
    assert counts(first) == (0, 1, 0, 0) and len(list(plans.iterdir())) == 1
    later = started(CHAIN, runs=1)
    assert counts(later) == (1, 0, 0, 0)
    assert (later.memory.plan_bytes, later.memory.shared_places) == (2 * BYTES, 3)
    assert later.memory.arena_bytes == first.memory.arena_bytes < 3 * BYTES
    later = started(CHAIN, runs=3)
    assert (later.memory.runs_replayed, later.memory.shared_bytes) == (3, BYTES)


def test_whoever_does_not_want_it(plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def files() -> int:
        return len(list(plans.iterdir())) if plans.exists() else 0

    started(CHAIN, keep_plans=False)
    started(CHAIN, debug=True)
    started(CHAIN, plans=[])
    monkeypatch.setenv("ONNXMEM_KEEP_PLANS", "0")
    started(CHAIN)
    assert files() == 0
    started(CHAIN, keep_plans=True)
    assert files() == 1
    assert counts(started(CHAIN)) == counts(started(CHAIN, keep_plans=True, debug=True)) == (0, 1, 0, 0)
    assert counts(started(CHAIN, keep_plans=True)) == (1, 0, 0, 0)
    # Asked for in other ways it is not the same.
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    assert counts(started(CHAIN, sess_options=options))[0] == 0
    assert counts(started(CHAIN, providers=[("CPUExecutionProvider", {})], keep_plans=True))[0] == 0


def test_what_may_run_in_another_order_must_be_recorded_twice(plans: Path) -> None:
    kernel = np.full((8, 8, 1, 1), 0.1, np.float32)
    blocked = model(("Conv", ["x", "k"], "a"), ("Sin", ["a"], "b"), ("Conv", ["b", "k"], "out"), k=kernel)
    sessions = [started(blocked) for _ in range(4)]
    assert [session.memory.runs_recorded for session in sessions] == [1, 1, 0, 0]
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    sessions = [started(blocked, sess_options=options) for _ in range(2)]
    assert [session.memory.runs_recorded for session in sessions] == [1, 0]


@SHARES_PLACES
def test_what_is_hardly_worth_it_is_not_kept(plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_module, "_WORTHWHILE", 2 * BYTES + 1)
    started(CHAIN)
    assert not plans.exists()


@SHARES_PLACES
def test_each_shape_has_its_own(plans: Path) -> None:
    larger = {"x": np.concatenate([FEEDS["x"]] * 3)}
    session = started(CHAIN)
    assert bits(session, larger) == stock(CHAIN, larger)
    assert len(list(plans.iterdir())) == 2
    # Whichever comes first proves for both which buffers may share.
    for one, other in ((FEEDS, larger), (larger, FEEDS)):
        later = started(CHAIN, one)
        assert bits(later, other) == stock(CHAIN, other)
        assert counts(later) == (2, 0, 0, 0)
        assert [shape.shared_places for shape in later.memory.shapes] == [3, 3]


@SHARES_PLACES
def test_sessions_that_share_nothing_have_their_own() -> None:
    for options, plan in (({"sharing": False}, (3 * BYTES, 0)), ({}, (2 * BYTES, 3))):
        for recorded in (1, 0):
            session = started(CHAIN, **options)
            assert counts(session) == (1 - recorded, recorded, 0, 0)
            assert (session.memory.plan_bytes, session.memory.shared_places) == plan


def test_where_nothing_is_shared_nothing_has_to_be_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    started(MATMULS)
    monkeypatch.setattr("onnxmem.session.planned.profile.Profile.nodes", lambda *_: pytest.fail("it was profiled"))
    assert counts(started(MATMULS)) == (1, 0, 0, 0)


@SHARES_PLACES
@pytest.mark.parametrize("damage", [b"", b"garbage", b"\xff" * 4000])
def test_a_damaged_file_is_as_good_as_none(plans: Path, damage: bytes) -> None:
    started(CHAIN)
    (file,) = plans.iterdir()
    whole = file.read_bytes()
    for content in (damage, whole[: len(whole) // 2], whole[:-8] + damage[:8]):
        file.write_bytes(content)
        assert counts(started(CHAIN)) == (0, 1, 0, 0)
        assert file.read_bytes() == whole
    assert counts(started(CHAIN)) == (1, 0, 0, 0)


@SHARES_PLACES
def test_a_file_that_says_nonsense_is_not_followed(plans: Path) -> None:
    session = started(CHAIN)
    (shape,) = session._planner.book.snapshot()[1]
    kept, (trace, placement), key = session._planner._kept, the_plan(session), shape.key
    assert kept.read(key) is not None

    def written(trace: Trace, placement: Placement) -> Any:
        tape = type("Tape", (), {"trace": trace, "offsets": placement.offsets, "cut": False})
        kept.write(key, tape, placement, NOTHING)
        return kept.read(key)

    assert written(trace, placement) is not None
    shared = placement.shared
    for pairs in (shared + len(trace), shared - len(trace), shared[:, ::-1], shared[:1]):
        assert written(trace, replace(placement, shared=np.ascontiguousarray(pairs))) is None
    for offsets in (placement.offsets + 1, placement.offsets * 0, np.where(placement.offsets >= 0, 1 << 60, -1)):
        assert written(trace, replace(placement, offsets=offsets)) is None
    assert written(Trace(trace.sizes, trace.uppers, trace.lowers), placement) is None


@SHARES_PLACES
def test_the_plan_of_another_model_is_noticed_and_replaced(plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = model(("Exp", ["x"], "a"), ("Sin", ["a"], "b"), ("MatMul", ["b", "m"], "out"), m=ONES)
    plan = the_plan(started(other, keep_plans=False))
    assert len(plan.placement.shared) == 1
    # It ends too early; what shared is not believed, and the run is done again.
    session = planted(CHAIN, plan, monkeypatch)
    assert counts(session) == (1, 1, 0, 0) and len(list(plans.iterdir())) == 1
    # What replaced it did not fit once: two processes must find the same before a third follows it.
    assert [counts(started(CHAIN))[0] for _ in range(3)] == [0, 1, 1]


@SHARES_PLACES
def test_other_nodes_with_the_same_calls_do_not_share(plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = the_plan(started(SINES, keep_plans=False))
    assert len(plan.placement.shared) == 2
    with monkeypatch.context() as patch:  # if it were believed, outputs would be wrong
        patch.setattr(PlanBook, "prove", lambda *_: True)
        with pytest.raises(AssertionError):
            planted(MATMULS, plan, monkeypatch)
    session = planted(MATMULS, plan, monkeypatch)
    assert counts(session) == (1, 0, 0, 1)
    assert (session.memory.shared_places, session.memory.plan_bytes) == (0, 2 * BYTES)
    session = started(MATMULS)
    assert counts(session) == (1, 0, 0, 0) and session.memory.shared_places == 0
    assert len(list(plans.iterdir())) == 1


def test_without_a_profile_nothing_unproven_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = the_plan(started(SINES, keep_plans=False))
    monkeypatch.setattr("onnxmem.session.planned.source._PART", 0.0)
    session = planted(MATMULS, plan, monkeypatch)
    assert counts(session) == (1, 0, 0, 0) and session.memory.shared_places == 0


def test_a_plan_that_never_fits_is_given_up(plans: Path) -> None:
    content, tried = small_models.branching(), []
    for turn in range(8):
        feeds = {"x": np.linspace(0, 1, 5000, dtype=np.float32), "flag": np.array(turn % 2 == 1)}
        tried.append(started(content, feeds, runs=1, sharing=False).memory.shapes_kept)
    assert tried == [0, 1, 0, 0, 0, 0, 0, 0]
    assert len(list(plans.iterdir())) == 1


def test_a_run_that_fails_says_nothing_about_the_plan() -> None:
    started(CHAIN)
    session = InferenceSession(CHAIN)
    options = onnxruntime.RunOptions()
    options.terminate, options.log_severity_level = True, 4
    with pytest.raises(Exception, match="terminate"):
        session.run(None, FEEDS, options)
    assert bits(session, FEEDS) == stock(CHAIN, FEEDS)


def test_many_threads_begin_at_once() -> None:
    started(CHAIN)
    expected = stock(CHAIN, FEEDS)
    for _ in range(5):
        session = InferenceSession(CHAIN)
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(lambda _: bits(session, FEEDS), range(24))) == [expected] * 24  # noqa: B023
        assert counts(session) == (1, 0, 0, 0)


def test_what_depends_on_the_data_shares_nothing_unproven(plans: Path) -> None:
    key, kept = RunKey((("x", (1,)),), ()), KeptPlans("name", steady=True)
    trace = Trace(np.array([64, 64]), np.array([0, 1]), np.array([2, 3]))
    sharing = Sharing(np.array([[0, 1]]), Trust.PREFIX)
    placement = place(trace, pairs=sharing.pairs)
    assert len(placement.shared) == 1
    kept.write(key, follow(trace, placement), placement, sharing)
    assert kept.read(key) is None
    apart = replace(place(trace), improvable=True)
    kept.write(key, follow(trace, apart), apart, NOTHING)
    (read_trace, read), other = kept.read(key) or pytest.fail("it was kept"), KeptPlans("another", steady=True)
    assert read_trace == trace and read.improvable and other.read(key) is None
    kept.write(key, follow(trace, apart), apart, NOTHING, searched=True)
    found = kept.read(key)
    assert found is not None and not found.placement.improvable


@pytest.mark.parametrize(
    ("sizes", "lowers", "uppers"),
    [
        ([64, 64], [0, 1], [2**62, 3]),  # who asks what is alive at each of its steps would run out of memory
        ([64, 64], [0, 2**62], [1, -1]),
        ([64, 64], [0, -(2**62)], [1, 2]),
        ([64, -64], [0, 1], [2, 3]),
        ([2**62, 2**62], [0, 1], [2, 3]),  # together they are less than nothing
        ([64], [0, 1], [2, 3]),
    ],
)
def test_a_trace_that_cannot_be_is_not_followed(
    plans: Path, sizes: list[int], lowers: list[int], uppers: list[int]
) -> None:
    columns = tuple(np.array(column, np.int64) for column in (sizes, lowers, uppers))
    assert not Trace(*columns).is_possible
    with pytest.raises(PlanError, match="this is not a trace"):
        Trace.from_document({"sizes": sizes, "lowers": lowers, "uppers": uppers})
    key = RunKey((("x", (1,)),), (), ())
    head = [1, 0, 1, 0, 0, len(sizes), 1]
    offsets, pairs = [0] * len(sizes), [0, 1]
    numbers = np.array([*head, *sizes, *lowers, *uppers, *offsets, *pairs], np.int64)
    kept_plans = KeptPlans("model", steady=True)
    cache.write(kept_plans._file(key), numbers.tobytes())
    assert kept_plans.read(key) is None
