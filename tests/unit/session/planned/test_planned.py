"""A planned session gives the same answers as a stock one, in the memory of its plan."""

from __future__ import annotations

import gc
import json
import resource
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from onnxmem import Arena, InferenceSession, PlanError, UsageError, zoo
from onnxmem._native import arena as native
from onnxmem.session.planned.trace import Trace, record
from tests import small_models as models

CPU = ["CPUExecutionProvider"]


def stock(model: bytes) -> Any:
    return ort.InferenceSession(model, one_thread(), CPU)


def planned(model: bytes, **extra: Any) -> Any:
    return InferenceSession(model, one_thread(), CPU, mode="planned", **extra)


def one_thread() -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return options


def array(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))


@pytest.fixture(scope="module")
def unet() -> bytes:
    return bytes(zoo.build("unet", channels=4).SerializeToString())


def test_outputs_are_the_same_and_the_arena_is_the_bound(unet: bytes) -> None:
    session, feeds = planned(unet), {"image": array(1, 3, 64, 64)}
    expected = stock(unet).run(None, feeds)
    for _ in range(5):
        assert same(session.run(None, feeds), expected)
    memory = session.memory
    assert (memory.runs_recorded, memory.runs_replayed, memory.runs_deviated, memory.runs_from_heap) == (1, 4, 0, 0)
    assert memory.bound_bytes <= memory.plan_bytes  # how near: see benchmarks/planned.py
    assert memory.plan_bytes <= memory.arena_bytes < memory.plan_bytes + 4096
    assert memory.reason == memory.shapes[0].reason == ""


def test_each_shape_has_its_plan_and_the_least_used_is_forgotten() -> None:
    session, reference = planned(models.tower(), max_plans=2), stock(models.tower())
    for width in (10, 20, 10, 20, 30, 10):
        feeds = {"x": array(width, 50)}
        assert same(session.run(None, feeds), reference.run(None, feeds))
    memory = session.memory
    assert memory.runs_recorded == 4  # 10, 20, 30, and 10 again, which 30 had displaced
    assert [shape.inputs for shape in memory.shapes] == [{"x": (30, 50)}, {"x": (10, 50)}]


def test_shapes_that_are_always_new_run_in_the_arena_too(unet: bytes) -> None:
    session, reference = planned(unet, max_plans=4), stock(unet)
    sides = [16 * k for k in (16, 12, 15, 9, 14, 10, 13, 11)]
    session.run(None, {"image": array(1, 3, 256, 256)})
    kept = []
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for side in sides[1:]:
        feeds = {"image": array(1, 3, side, side)}
        # Outputs are kept, as a caller may: were they in the arena, nobody else could run there.
        kept.append((session.run(None, feeds), feeds))
        assert session.arena.pool.stats().escaped == 0
    pages = (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
    assert session.memory.runs_recorded + session.memory.shapes_predicted == len(sides)
    # Each run touches many times the arena; with a fresh mapping for each buffer, all of that would be new pages.
    assert pages < 3 * session.arena.bytes
    assert all(same(outputs, reference.run(None, feeds)) for outputs, feeds in kept)


def test_other_outputs_are_another_plan() -> None:
    session, feeds = planned(models.tower()), {"x": array(20, 50)}
    both, one = session.run(None, feeds), session.run(["z"], feeds)
    assert same(one, both[1:])
    for _ in range(2):
        assert same(session.run(None, feeds), both)
        assert same(session.run(["z"], feeds), one)
    assert session.memory.runs_deviated == 0


def test_plans_go_through_a_file(unet: bytes) -> None:
    session, feeds = planned(unet), {"image": array(1, 3, 64, 64)}
    expected = session.run(None, feeds)
    document = json.loads(json.dumps(session.export_plans()))
    second = planned(unet, plans=document)
    assert same(second.run(None, feeds), expected)
    assert (second.memory.runs_recorded, second.memory.runs_replayed) == (0, 1)
    assert second.memory.plan_bytes == session.memory.plan_bytes


def test_a_plan_of_another_model_does_no_harm(unet: bytes) -> None:
    donor = planned(models.tower())
    donor.run(None, {"x": array(5, 50)})
    document = donor.export_plans()
    document[0]["inputs"] = [["image", [1, 3, 32, 32]]]
    session, feeds = planned(unet, plans=document), {"image": array(1, 3, 32, 32)}
    expected = stock(unet).run(None, feeds)
    for _ in range(6):
        assert same(session.run(None, feeds), expected)
    # It is thrown away and recorded again.
    assert session.memory.runs_recorded == 1
    assert session.memory.runs_replayed > 0


def test_a_file_that_lies_is_refused(unet: bytes) -> None:
    session = planned(unet)
    session.run(None, {"image": array(1, 3, 32, 32)})
    document = session.export_plans()
    for alignment in (0, 1, 32, -64, "64"):
        with pytest.raises(PlanError, match="aligned"):
            planned(unet, plans=[{**document[0], "alignment": alignment}])
    document[0]["offsets"] = [0 for _ in document[0]["offsets"]]
    with pytest.raises(PlanError, match="overlap"):
        planned(unet, plans=document)
    with pytest.raises(PlanError):
        planned(unet, plans=[{"inputs": 3}])


def test_bindings_and_preallocated_outputs() -> None:
    session, feeds = planned(models.tower()), {"x": array(20, 50)}
    y, z = stock(models.tower()).run(None, feeds)
    binding = session.io_binding()
    binding.bind_cpu_input("x", feeds["x"])
    binding.bind_output("y")
    mine = np.zeros_like(z)
    binding.bind_output("z", "cpu", 0, np.float32, [], mine.ctypes.data)
    for _ in range(4):
        session.run_with_iobinding(binding)
        assert same([binding.copy_outputs_to_cpu()[0], mine], [y, z])
    assert session.memory.runs_deviated == 0
    assert session.memory.runs_replayed >= 2
    value = ort.OrtValue.ortvalue_from_numpy(feeds["x"])
    for _ in range(3):
        assert same([v.numpy() for v in session.run_with_ort_values(None, {"x": value})], [y, z])


def test_a_binding_of_onnxruntimes_own_kind_works_too() -> None:
    session, feeds = planned(models.tower()), {"x": array(20, 50)}
    expected = stock(models.tower()).run(None, feeds)
    for _ in range(3):
        binding = ort.IOBinding(session)
        binding.bind_cpu_input("x", feeds["x"])
        binding.bind_output("y")
        binding.bind_output("z")
        session.run_with_iobinding(binding)
        assert same(binding.copy_outputs_to_cpu(), expected)


def test_outputs_outlive_session_and_arena() -> None:
    session, feeds = planned(models.tower()), {"x": array(500, 300)}
    expected = [output.copy() for output in session.run(None, feeds)]
    kept = session.run(None, feeds)
    del session
    gc.collect()
    assert same(kept, expected)
    # And they keep nothing but themselves: when they go, so does their memory.
    before = native.heap_stats().live_bytes
    size = kept[0].nbytes
    del kept
    gc.collect()
    assert native.heap_stats().live_bytes <= before - size


def test_an_output_is_not_written_to_by_the_next_run() -> None:
    session = planned(models.tower())
    results = [(seed, session.run(None, {"x": array(100, 300, seed=seed)})) for seed in range(5)]
    reference = stock(models.tower())
    for seed, outputs in results:
        assert same(outputs, reference.run(None, {"x": array(100, 300, seed=seed)}))


def test_a_failed_run_leaves_the_session_in_order(unet: bytes) -> None:
    session, feeds = planned(unet), {"image": array(1, 3, 32, 32)}
    expected = session.run(None, feeds)
    with pytest.raises(Exception, match=r"INVALID_ARGUMENT|Invalid rank"):
        session.run(None, {"image": array(3, 32)})
    with pytest.raises(Exception, match="33"):
        session.run(None, {"image": array(1, 3, 33, 33)})  # does not halve: fails in the middle of a run
    for _ in range(2):
        assert same(session.run(None, feeds), expected)
    assert session.memory.runs_deviated == 0
    assert session.memory.arena_bytes < session.memory.plan_bytes + 4096


@pytest.mark.parametrize("name", ["data_dependent", "branching", "looping"])
def test_runs_that_differ_are_right_and_counted(name: str) -> None:
    model = getattr(models, name)()
    session, reference = planned(model), stock(model)
    for turn in range(40):
        x = array(256, 32, seed=turn) if name == "data_dependent" else array(5000, seed=turn)
        more = {"branching": {"flag": np.array(turn % 2 == 1)}, "looping": {"turns": np.array(turn % 5)}}.get(name, {})
        feeds = {"x": x, **more}
        assert same(session.run(None, feeds), reference.run(None, feeds))
    memory = session.memory
    assert memory.runs_deviated >= 3
    assert memory.shapes[0].last_deviation is not None
    assert memory.shapes[0].reason
    # Once it is known what is the same in every run, nothing deviates any more.
    served = memory.runs_recorded + memory.runs_replayed + memory.runs_deviated + memory.runs_from_heap
    assert served == 40
    assert memory.runs_deviated <= 10
    assert native.heap_stats().unknown_frees == 0


def test_buffers_whose_size_depends_on_the_data_are_left_out_and_the_rest_stays_planned() -> None:
    session = planned(models.data_dependent())
    for turn in range(60):
        session.run(None, {"x": array(256, 32, seed=turn)})
    memory = session.memory
    assert "their size depends on the data" in memory.shapes[0].reason
    assert memory.runs_replayed > 40
    assert memory.plan_bytes >= 256 * 512 * 4


def test_the_part_that_is_always_the_same_stays_planned() -> None:
    session = planned(models.looping())
    for turn in range(60):
        session.run(None, {"x": array(5000, seed=turn), "turns": np.array(turn % 5)})
    memory = session.memory
    assert "only the first" in memory.shapes[0].reason
    assert memory.runs_replayed > 40


def test_debug_mode_watches_and_finds_nothing(unet: bytes) -> None:
    session, feeds = planned(unet, debug=True), {"image": array(1, 3, 64, 64)}
    expected = stock(unet).run(None, feeds)
    for _ in range(4):
        assert same(session.run(None, feeds), expected)
    assert session.memory.overruns == 0
    assert session.memory.runs_replayed == 3


def test_threads_get_an_arena_each(unet: bytes) -> None:
    """A short version of benchmarks/planned_soak.py."""
    session, reference = planned(unet, arena=Arena(3)), stock(unet)
    feeds = [{"image": array(1, 3, side, 32, seed=side)} for side in (32, 64, 96)]
    expected = [reference.run(None, each) for each in feeds]
    wrong: list[int] = []

    def work(number: int) -> None:
        for turn in range(25):
            k = (turn + number) % len(feeds)
            if not same(session.run(None, feeds[k]), expected[k]):
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    memory = session.memory
    assert not wrong
    assert memory.regions <= 3
    assert memory.runs_deviated == 0
    assert memory.runs_recorded + memory.runs_replayed == 200


def test_a_busy_arena_can_send_runs_to_the_heap() -> None:
    session = planned(models.tower(), arena=Arena(1, busy="heap"))
    feeds = {"x": array(20, 50)}
    expected = session.run(None, feeds)
    (shape,) = session._planner.book.snapshot()[1]
    assert native.begin_replay(shape.tape, session.arena.pool)  # as if another run were inside
    assert same(session.run(None, feeds), expected)
    native.end_run()
    assert session.memory.runs_from_heap == 1


def test_sessions_that_share_an_arena_take_as_much_as_the_largest(unet: bytes) -> None:
    arena = Arena()
    first, second = planned(unet, arena=arena), planned(models.tower(), arena=arena)
    for _ in range(3):
        first.run(None, {"image": array(1, 3, 64, 64)})
        second.run(None, {"x": array(20, 50)})
    assert arena.bytes < max(first.memory.plan_bytes, second.memory.plan_bytes) + 4096
    assert arena.largest == arena.bytes


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_trim_gives_pages_back_and_the_next_run_takes_them(unet: bytes) -> None:
    session, feeds = planned(unet), {"image": array(1, 3, 512, 512)}
    expected = session.run(None, feeds)
    session.run(None, feeds)
    full, arena = resident(), session.memory.arena_bytes
    session.trim()
    assert resident() < full - arena * 0.8
    assert same(session.run(None, feeds), expected)


def test_idle_arenas_are_trimmed(unet: bytes) -> None:
    session, feeds = planned(unet, trim_after=0.2), {"image": array(1, 3, 512, 512)}
    session.run(None, feeds)
    session.run(None, feeds)
    full, arena = resident(), session.memory.arena_bytes
    deadline = time.monotonic() + 20
    while resident() > full - arena * 0.8 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert resident() < full - arena * 0.8


def test_the_callers_options_stay_as_they_were(unet: bytes) -> None:
    options = one_thread()
    InferenceSession(unet, options, CPU, mode="planned")
    assert options.enable_mem_pattern
    assert options.enable_mem_reuse
    session, feeds = ort.InferenceSession(unet, options, CPU), {"image": array(1, 3, 32, 32)}
    before = native.heap_stats().live_blocks
    kept = session.run(None, feeds)
    assert native.heap_stats().live_blocks == before  # a stock session does not come to us
    del kept


def test_new_providers_are_a_new_session(unet: bytes) -> None:
    session, feeds = planned(unet), {"image": array(1, 3, 32, 32)}
    expected = session.run(None, feeds)
    session.set_providers(CPU)
    for _ in range(2):
        assert same(session.run(None, feeds), expected)
    assert session.memory.runs_deviated == 0


def test_too_little_memory_is_an_exception_and_not_a_crash() -> None:
    session = planned(models.tower())
    endless = np.lib.stride_tricks.as_strided(np.zeros(1, np.float32), (2**20, 2**24), (0, 0))
    with pytest.raises(Exception, match=r"(?i)alloc"):
        session.run(None, {"x": endless})
    feeds = {"x": array(3, 5)}
    assert same(session.run(None, feeds), stock(models.tower()).run(None, feeds))


@pytest.mark.skipif(
    Path("/proc/sys/vm/overcommit_memory").read_text().strip() == "1", reason="the system refuses nobody memory"
)
def test_more_than_the_machine_has_is_refused_inside_an_arena_too() -> None:
    """Where it was not, a request that was too large did not fail, but ended the process as it was written to. So here
    its index is wrong, which is looked at after there is memory and before that is written to."""
    nodes = [("Sin", ["x"], "a"), ("Exp", ["a"], "b"), ("Gather", ["b", "i"], "c"), ("ReduceMax", ["c"], "y")]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2**20]),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["k"]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph([helper.make_node(op, ins, [out]) for op, ins, out in nodes], "g", inputs, outputs)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session, x = planned(content.SerializeToString()), np.ones((2, 2**20), np.float32)
    for count in (2, 2, 3, 3, 4, 4):
        session.run(None, {"x": x, "i": np.zeros(count, np.int64)})
    assert session.memory.arena_bytes
    with pytest.raises(Exception, match=r"(?i)alloc"):
        session.run(None, {"x": x, "i": np.full(2**22, 2)})  # 16 TiB


@pytest.mark.parametrize("wrong", [{"limit": 0}, {"busy": "sleep"}, {"trim_after": -1}])
def test_wrong_arenas_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Arena(**wrong)


def test_a_trace_holds_everything_the_run_asked_for(unet: bytes) -> None:
    feeds = {"image": array(1, 3, 64, 64)}
    trace = record(unet, feeds)
    outputs = stock(unet).run(None, feeds)
    assert trace.output_bytes == sum(output.nbytes for output in outputs)
    assert trace.problem().lower_bound == trace.bound()
    assert trace.steps == 2 * len(trace) - len(outputs)


def test_a_trace_comes_back_equal_from_json(unet: bytes) -> None:
    trace = record(unet, {"image": array(1, 3, 64, 64)})
    assert Trace.from_document(json.loads(json.dumps(trace.document()))) == trace
    assert trace.prefix(10) != trace
    with pytest.raises(PlanError, match="not a trace"):
        Trace.from_document({"sizes": [1]})
