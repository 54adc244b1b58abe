"""Places shared by operators: what is found, what is not, and that outputs stay the same, bit by bit."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from benchmarks import shared_places
from onnxmem import InferenceSession
from onnxmem.errors import PlanError
from onnxmem.files import clear_left_behind
from onnxmem.session.planned import asking, rules, sharing, source
from onnxmem.session.planned.answers import read_answers
from onnxmem.session.planned.pairs import NOTHING, Question, Sharing, Trust
from onnxmem.session.planned.profile import NodeCalls, Profile, Value
from onnxmem.session.planned.rules import PROMISED, Rules, question
from onnxmem.session.planned.steady import steady_part
from onnxmem.session.planned.trace import Trace
from tests.helpers import hashes

SHARES_PLACES = pytest.mark.skipif(
    tuple(map(int, onnxruntime.__version__.split(".")[:2])) < (1, 28),
    reason="places are shared by what profiles say of memory, since ONNX Runtime 1.28",
)
SHAPE = (1, 8, 64, 64)
BYTES = 4 * 8 * 64 * 64
FEEDS = {"x": np.linspace(0.1, 1.9, BYTES // 4, dtype=np.float32).reshape(SHAPE)}


@pytest.fixture(autouse=True)
def _however_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WORTHWHILE", 1)
    monkeypatch.setattr(source, "_PART", 1e9)


def model(
    *nodes: Any, inputs: dict[str, Any] | None = None, outputs: tuple[str, ...] = ("out",), **constants: Any
) -> bytes:
    """A model over x, in which nodes are (operator, inputs, output, attributes)."""
    made = [helper.make_node(op, ins, [out], name=f"make_{out}", **dict(*rest)) for op, ins, out, *rest in nodes]
    graph = helper.make_graph(
        made,
        "g",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [None] * 4),
            *(helper.make_tensor_value_info(name, *type_) for name, type_ in (inputs or {}).items()),
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    written: bytes = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9
    ).SerializeToString()
    return written


# What is read again ends nowhere: a and b die in d, one after the other in their turn.
CHAIN = model(
    ("Exp", ["x"], "a"),
    ("Sin", ["a"], "b"),
    ("MatMul", ["b", "m"], "c"),
    ("Add", ["b", "c"], "d"),
    ("MaxPool", ["d"], "e", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Mul", ["e", "s"], "f"),
    ("MatMul", ["f", "m"], "out"),
    m=np.eye(64, dtype=np.float32) / 3,
    s=np.linspace(1, 2, 64, dtype=np.float32),
)


def stock(content: bytes, feeds: dict[str, Any], sess_options: Any = None) -> list[str]:
    if sess_options is None:
        sess_options = onnxruntime.SessionOptions()
        sess_options.log_severity_level = 4
    session = onnxruntime.InferenceSession(content, sess_options, ["CPUExecutionProvider"])
    return hashes(session.run(None, feeds))


def bits(session: Any, feeds: dict[str, Any]) -> list[str]:
    return hashes(session.run(None, feeds))


@SHARES_PLACES
def test_an_output_takes_the_place_of_an_input_that_dies() -> None:
    session = InferenceSession(CHAIN)
    runs = [bits(session, FEEDS) for _ in range(3)]
    assert runs == [stock(CHAIN, FEEDS)] * 3
    memory = session.memory
    # b over a, d over b or c, f over e; without it, b, c and d are alive at once.
    assert memory.shared_places == memory.shapes[0].shared_places == 3
    assert (memory.plan_bytes, memory.shared_bytes) == (2 * BYTES, BYTES)
    assert (memory.runs_recorded, memory.runs_replayed, memory.runs_deviated, memory.runs_repeated) == (1, 2, 0, 0)


def test_it_can_be_turned_off() -> None:
    session = InferenceSession(CHAIN, sharing=False)
    assert [bits(session, FEEDS) for _ in range(2)] == [stock(CHAIN, FEEDS)] * 2
    assert (session.memory.plan_bytes, session.memory.shared_places) == (3 * BYTES, 0)


def test_little_is_not_worth_asking_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "WORTHWHILE", BYTES + 1)
    monkeypatch.setattr(Rules, "allow", lambda *_: pytest.fail("a kernel was asked"))
    session = InferenceSession(CHAIN)
    session.run(None, FEEDS)
    assert session.memory.shared_places == 0


@SHARES_PLACES
def test_other_shapes_share_what_the_first_one_did() -> None:
    session = InferenceSession(CHAIN)
    session.run(None, FEEDS)
    others = {"x": np.concatenate([FEEDS["x"]] * 3)}
    assert [bits(session, others) for _ in range(2)] == [stock(CHAIN, others)] * 2
    assert [shape.shared_places for shape in session.memory.shapes] == [3, 3]
    assert session.memory.shapes[1].arena_bytes == 6 * BYTES


@given(st.data())
@hypothesis_settings(max_examples=25, deadline=None)
def test_random_graphs_give_the_same_bits(data: st.DataObject) -> None:
    graph = shared_places.build(lambda count: data.draw(st.integers(0, count - 1)))
    assert shared_places.compare(graph, debug=data.draw(st.booleans())).same


# What must not happen.


@pytest.fixture
def wrong_rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """MatMul and MaxPool are said to allow it, and nobody asks them."""
    monkeypatch.setitem(PROMISED, "MatMul", (0,))
    monkeypatch.setitem(PROMISED, "MaxPool", (0,))
    planted = Rules()
    monkeypatch.setattr(planted, "allow", lambda put, positions, threads: True)
    monkeypatch.setattr(planted, "keep", lambda: None)
    monkeypatch.setattr(sharing, "known_rules", lambda: planted)
    asked = rules.question
    monkeypatch.setattr(
        sharing,
        "question",
        lambda node: Question(node.op, "float", ("1",)) if node.op in ("MatMul", "MaxPool") else asked(node),
    )
    yield


WRONG = model(
    ("Exp", ["x"], "a"),
    ("MaxPool", ["a"], "b", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Add", ["b", "s"], "c"),
    ("Transpose", ["c"], "out", {"perm": [0, 1, 3, 2]}),
    s=np.float32(1.5),
)


@SHARES_PLACES
@pytest.mark.usefixtures("wrong_rule")
def test_a_wrong_rule_would_be_noticed_in_the_outputs() -> None:
    session = InferenceSession(WRONG)
    first, second = bits(session, FEEDS), bits(session, FEEDS)
    assert first == stock(WRONG, FEEDS)
    assert second != first


@SHARES_PLACES
@pytest.mark.usefixtures("wrong_rule")
def test_debugging_catches_a_wrong_rule_and_names_the_node() -> None:
    session = InferenceSession(WRONG, debug=True)
    with pytest.warns(RuntimeWarning, match=r"written over its input: make_b \(MaxPool\); no places are shared"):
        first = bits(session, FEEDS)
    assert [first, bits(session, FEEDS), bits(session, FEEDS)] == [stock(WRONG, FEEDS)] * 3
    assert (session.memory.shared_places, session.memory.overruns) == (0, 0)


@pytest.mark.parametrize("how", ["none", "tanh"])
def test_a_gelu_is_right_in_both_its_variants(how: str) -> None:
    wide, narrow = (np.linspace(-1, 1, 64 * 256, dtype=np.float32).reshape(shape) for shape in ((64, 256), (256, 64)))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Gelu", ["a"], ["b"], approximate=how),
        helper.make_node("MatMul", ["b", "n"], ["y"]),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 64]) for name in ("x", "y")]
    weights = [numpy_helper.from_array(wide, "w"), numpy_helper.from_array(narrow, "n")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], weights)
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9).SerializeToString()
    feeds = {"x": np.linspace(-3, 3, 128 * 64, dtype=np.float32).reshape(128, 64)}
    session = InferenceSession(content)
    assert [bits(session, feeds) for _ in range(3)] == [stock(content, feeds)] * 3
    # Plain, it shares where the processor has the routine that reads each number once. By tanh, it never does.
    assert how == "none" or session.memory.shared_places == 0


def test_kernels_that_must_not_share_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("Hardmax", "CumSum"):
        monkeypatch.setitem(PROMISED, op, (0,))
    assert asking.ask(Question("Hardmax", "float", ("11",)), 2) == []
    assert asking.ask(Question("Add", "float", ("1", "1")), 2) == [0, 1]
    assert asking.ask(Question("Add", "float", ("11", "01")), 1) == [0]


# An empty slice is not asked for: what comes after is taken for it, as far as sizes can tell.
BY_VALUE = model(
    ("Exp", ["x"], "a"),
    ("Slice", ["a", "zero", "n", "three"], "b"),
    ("Shape", ["b"], "k"),
    ("Cast", ["k"], "t", {"to": TensorProto.FLOAT}),
    ("ReduceSum", ["t"], "u", {"keepdims": 0}),
    ("Sin", ["a"], "c"),
    ("MaxPool", ["c"], "d", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Add", ["d", "c"], "e"),
    ("MaxPool", ["e"], "f", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Sub", ["f", "u"], "out"),
    inputs={"n": (TensorProto.INT64, [1])},
    zero=np.array([0]),
    three=np.array([3]),
)


@SHARES_PLACES
def test_a_run_that_makes_other_calls_is_done_again() -> None:
    session = InferenceSession(BY_VALUE)
    for count in (64, 64, 0, 64, 5, 0, 64):
        feeds = {**FEEDS, "n": np.array([count])}
        assert bits(session, feeds) == stock(BY_VALUE, feeds), count
        assert count != 64 or session.memory.runs_repeated or session.memory.shared_places
    assert session.memory.runs_repeated == 1
    assert session.memory.shared_places == 0


SEARCHING = model(
    ("Exp", ["x"], "a"),
    ("MaxPool", ["a"], "b", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}),
    ("Add", ["a", "b"], "c"),
    ("Greater", ["c", "s"], "d"),
    ("NonZero", ["d"], "e"),
    ("Cast", ["e"], "f", {"to": TensorProto.FLOAT}),
    ("Sin", ["f"], "g"),
    ("Cos", ["g"], "h"),
    ("ReduceMax", ["c"], "i"),
    ("Add", ["h", "i"], "out"),
    s=np.float32(5),
)


def test_what_comes_before_a_search_shares_and_what_comes_after_does_not() -> None:
    session = InferenceSession(SEARCHING)
    for factor in (1.0, 1.0, 0.5, 1.0, 0.2, 1.0):
        feeds = {"x": FEEDS["x"] * np.float32(factor)}
        assert bits(session, feeds) == stock(SEARCHING, feeds)
    assert session.memory.shapes[0].shared_places <= 1
    assert session.memory.runs_repeated == 0


def test_steady_nodes_end_where_values_decide() -> None:
    def node(op: str, begin: int, end: int, *inputs: Value, constant: int = 0) -> NodeCalls:
        return NodeCalls(op, op, inputs, (), constant, begin, end)

    data, shape = Value("float", (4, 4)), Value("int64", (2,))
    nodes = [node("Add", 0, 1, data), node("Expand", 1, 2, data, shape), node("Mul", 2, 3, data)]
    assert steady_part(nodes) == (nodes, Trust.ALL)
    loop = [*nodes, node("Add", 4, 5, data), node("Loop", 3, 6, data)]
    assert steady_part(loop) == (nodes[:1], Trust.PREFIX)
    loop[1] = node("Expand", 1, 2, data, shape, constant=shape.bytes)
    assert steady_part(loop) == ([nodes[0], loop[1], nodes[2]], Trust.PREFIX)


def test_who_profiles_for_himself_has_his_profile_and_shares_nothing(tmp_path: Path) -> None:
    options = onnxruntime.SessionOptions()
    options.enable_profiling, options.profile_file_prefix = True, str(tmp_path / "mine")
    session = InferenceSession(CHAIN, options)
    session.run(None, FEEDS)
    session.run(None, FEEDS)
    assert session.memory.shared_places == 0
    events = json.loads(Path(session.end_profiling()).read_text())
    assert [event["args"]["op_name"] for event in events if event["cat"] == "Node"].count("Add") == 2
    assert not any(name.startswith("mem_") for event in events for name in event["args"])


@SHARES_PLACES
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    options = onnxruntime.SessionOptions()
    session = InferenceSession(CHAIN, options)
    assert list(tmp_path.iterdir()) == []
    assert not options.enable_profiling
    session.run(None, FEEDS)
    assert session.memory.shared_places
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("refused", ["folder", "file"])
def test_without_room_for_open_files_nothing_is_profiled_for_ever(
    refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    original = os.open

    def refuse(path: Any, *arguments: Any, **keywords: Any) -> int:
        if str(path).startswith(f"{tmp_path}/") and (refused == "folder" or str(path).endswith(".json")):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return original(path, *arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        session = InferenceSession(CHAIN)
    assert list(tmp_path.iterdir()) == []
    assert [bits(session, FEEDS) for _ in range(2)] == [stock(CHAIN, FEEDS)] * 2
    assert onnxruntime.InferenceSession.end_profiling(session) == ""  # it is over


@SHARES_PLACES
@pytest.mark.parametrize("before", ["open", "flock"])
def test_another_process_that_clears_at_that_moment_costs_no_profile(
    before: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that nobody has locked yet is taken for one that a killed process left."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    module: Any = {"open": os, "flock": fcntl}[before]
    original, cleared = getattr(module, before), False

    def clear(*arguments: Any, **keywords: Any) -> Any:
        nonlocal cleared
        if not cleared and list(tmp_path.iterdir()):
            cleared = True
            clear_left_behind(tmp_path, "onnxmem.tmp-")
            assert not list(tmp_path.iterdir())
        return original(*arguments, **keywords)

    with monkeypatch.context() as patch:
        patch.setattr(module, before, clear)
        session = InferenceSession(CHAIN, keep_plans=False)
    session.run(None, FEEDS)
    assert cleared and session.memory.shared_places
    assert list(tmp_path.iterdir()) == []


def test_a_profile_that_is_not_whole_is_not_used(tmp_path: Path) -> None:
    def event(token: int, number: int, end: int) -> str:
        return json.dumps({
            "cat": "Node", "name": f"n{number}_kernel_time",
            "args": {"op_name": "Add", "input_type_shape": [], "output_type_shape": [], "parameter_size": "0",
                     "mem_bytes_in_use": str(end), "mem_in_use_delta": "1", "mem_arena_held": str(token),
                     "mem_in_use_peak": str(number)},
        }) + ",\n"  # fmt: skip

    def nodes(*lines: str) -> list[str]:
        path = tmp_path / "profile.json"
        path.touch()
        profile = Profile(os.open(path, os.O_RDONLY))
        token = profile.new_token()
        path.write_text("[\n" + "".join(lines).replace(str(1234567), str(token)))
        return [node.name for node in profile.nodes(4)]

    whole = event(1234567, 2, 1), event(1234567, 4, 2)
    assert nodes(*whole) == ["n2", "n4"]
    assert nodes(*reversed(whole), event(1, 6, 9), "{broken\n") == ["n2", "n4"]
    assert nodes(whole[0]) == []
    assert nodes(whole[0], whole[1][:-20] + "\n") == []
    assert nodes(*whole, whole[1]) == []


# What was found out, and written down.


def test_answers_are_kept_and_a_damaged_file_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    put, promises = Question("Neg", "float", ("1",)), sorted(PROMISED.items())
    fresh = Rules(read_answers(promises))
    assert fresh.allow(put, [0], 1)
    fresh.keep()
    (file,) = (tmp_path / "onnxmem").iterdir()
    told = Rules(read_answers(promises))
    assert told.told == {"1 Neg float 1": [0]}
    assert told.allow(put, [0], 1) and not told.asked
    assert not told.allow(put, [1], 1)
    file.write_text(file.read_text().replace("[0]", "[0, 1]"))
    assert read_answers(promises) == {}
    file.write_text("{")
    assert read_answers(promises) == {}


def test_questions_are_about_how_a_node_broadcasts() -> None:
    def asked(op: str, *shapes: tuple[int, ...]) -> tuple[str, ...] | None:
        inputs = [Value("float", shape) for shape in shapes]
        largest = max(inputs, key=lambda value: value.bytes)
        put = question(NodeCalls("n", op, tuple(inputs), (largest,), 0, 0, 1))
        return put.forms if put else None

    assert asked("Add", (2, 3, 4), (2, 3, 4)) == ("1", "1")
    assert asked("Add", (2, 3, 4), ()) == ("1", "0")
    assert asked("Add", (3, 1, 1), (1, 3, 5, 5)) == ("10", "11")
    assert asked("Mul", (2, 3, 5, 7), (1, 3, 1, 7)) == ("1111", "0101")
    assert asked("LayerNormalization", (2, 3, 4), (4,), (4,)) == ("full", "row", "row")
    assert asked("LayerNormalization", (2, 3, 4), (3, 4), (3, 4)) is None
    assert asked("Sum", (2, 3), (2, 3), (2, 3)) is None
    assert asked("MatMul", (3, 3), (3, 3)) is None


def test_pairs_come_back_from_a_file_and_wrong_ones_are_refused() -> None:
    found = Sharing(np.array([[0, 1], [4, 7]]), Trust.PREFIX, order="any", nodes={1: "a (Add)"})
    again = Sharing.from_document(json.loads(json.dumps(found.document())))
    assert again.pairs.tolist() == [[0, 1], [4, 7]]
    assert (again.trust, again.order, again.nodes) == (Trust.PREFIX, "any", {1: "a (Add)"})
    with pytest.raises(PlanError, match="not pairs"):
        Sharing.from_document({"pairs": [[1]], "trust": "ALL"})
    with pytest.raises(PlanError, match="not there"):
        again.within(7)
    assert not NOTHING and found


def test_plans_for_other_sessions_share_nothing() -> None:
    session = InferenceSession(CHAIN)
    session.run(None, FEEDS)
    plans = session.export_plans()
    assert plans[0]["peak_bytes"] == 3 * BYTES
    other = InferenceSession(CHAIN, plans=plans)
    assert [bits(other, FEEDS) for _ in range(2)] == [stock(CHAIN, FEEDS)] * 2
    assert (other.memory.shared_places, other.memory.runs_recorded) == (0, 0)


def test_pairs_are_for_the_same_calls_only() -> None:
    columns = np.array([64, 64, 8]), np.array([0, 1, 3]), np.array([2, 5, 4])
    mine, found = Trace(*columns), Sharing(np.array([[0, 1]]))
    assert found.for_trace(mine, Trace(np.array([128, 128, 9]), *columns[1:])).pairs.tolist() == [[0, 1]]
    assert not found.for_trace(mine, Trace(np.array([128, 64, 8]), *columns[1:]))
    assert not found.for_trace(mine, Trace(columns[0], np.array([0, 1, 2]), np.array([3, 5, 4])))
