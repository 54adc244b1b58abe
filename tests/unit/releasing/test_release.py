from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from onnxmem.errors import SessionClosed, UsageError
from onnxmem.releasing.live_outputs import live_outputs
from onnxmem.releasing.release import release
from onnxmem.session.trim import trim
from onnxmem.unknown import Unknown

MIB = 2**20
IMAGE = np.zeros((1, 3, 256, 256), np.float32)
X = np.ones((3, 64), np.float32)


def load(path: Path) -> Any:
    return ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])


@pytest.fixture(autouse=True)
def _tidy() -> None:
    gc.collect()


def test_a_session_that_others_hold_is_closed_all_the_same(unet: Path) -> None:
    session = load(unet)
    elsewhere = {"cache": [session]}
    session.run(None, {"image": IMAGE})
    result = release(session)
    assert isinstance(result.freed, int) and result.freed > 40 * MIB
    assert isinstance(result.freed_anon, int) and result.freed_anon > 40 * MIB
    assert not result.held_by and not result.already and result.trimmed is True
    assert "released" in str(result) and elsewhere["cache"][0] is session


def test_afterwards_every_use_is_a_clear_error_and_releasing_again_is_harmless(model: Path) -> None:
    session = load(model)
    run = session.run
    release(session)
    uses = (lambda: session.run(None, {"x": X}), lambda: run(None, {"x": X}), session.get_inputs, session.get_outputs)
    for use in (*uses, session.get_providers, session.io_binding, session.end_profiling, session.get_modelmeta):
        with pytest.raises(SessionClosed, match="released"):
            use()
    again = release(session)
    assert again.already and again.freed is not None and isinstance(session, ort.InferenceSession)
    assert "before" in str(again)


def test_a_model_given_as_bytes_is_let_go_too(tmp_path: Path) -> None:
    from onnxmem import zoo  # noqa: PLC0415

    session = ort.InferenceSession(zoo.build("matmul", layers=3, width=1024).SerializeToString())
    result = release(session)
    # 12 MiB of bytes that Python kept, and 12 MiB of weights.
    assert isinstance(result.freed_anon, int) and result.freed_anon > 20 * MIB


def test_a_subclass_keeps_its_own_attributes(model: Path) -> None:
    class Mine(ort.InferenceSession):  # type: ignore[misc]
        def predict(self) -> Any:
            return self.run(None, {"x": X})

    session = Mine(str(model), providers=["CPUExecutionProvider"])
    session.labels, session.other = ["cat", "dog"], load(model)
    release(session)
    assert session.labels == ["cat", "dog"] and session.other.run(None, {"x": X})
    with pytest.raises(SessionClosed):
        session.predict()


def test_live_outputs_are_named_and_cost_the_whole_arena(unet: Path) -> None:
    session = load(unet)
    for _ in range(2):
        outputs = session.run(None, {"image": IMAGE})
    kept = {"mask": [outputs[0][0, 0]]}
    del outputs
    result = release(session)
    (output,) = result.live_outputs
    assert "kept['mask'][0]" in output.where and "in test_live_outputs" in output.where
    before = result.after.anon
    kept.clear()
    gc.collect()
    after = release(session).after.anon
    assert isinstance(before, int) and isinstance(after, int) and before - after > 20 * output.size


def test_outputs_in_tuples_objects_and_ort_values_are_found(model: Path) -> None:
    class Holder:
        def __init__(self, value: Any) -> None:
            self.value = value

    session = load(model)
    pair = (session.run(None, {"x": X})[0], 1)
    holder = Holder(session.run(None, {"x": X})[0])
    value = session.run_with_ort_values(["y"], {"x": ort.OrtValue.ortvalue_from_numpy(X)})
    places = " ".join(output.where for output in live_outputs())
    assert "pair[0] in test_" in places and "holder.value in test_" in places and "value[0] in test_" in places
    del pair, holder, value
    gc.collect()
    assert not live_outputs()


def test_looking_for_outputs_keeps_none_of_them(model: Path) -> None:
    session = load(model)
    output = session.run(None, {"x": X})[0]
    shown, kept = weakref.ref(output), 5
    assert release(session).live_outputs
    del output
    assert shown() is None
    mine = locals()
    live_outputs()
    assert mine["kept"] == kept == 5


def test_outputs_are_blamed_only_if_they_are_this_sessions(model: Path, unet: Path) -> None:
    mine, other, twin = load(model), load(unet), load(model)
    kept = [other.run(None, {"image": IMAGE})[0], twin.run(None, {"x": X})[0]]
    assert not release(mine).live_outputs, "outputs of others are none of its business, not even of its twin"
    # Who gave the first cannot be told while there are two that could have; of the one that is left it can.
    (output,) = release(twin).live_outputs
    assert "kept[1]" in output.where
    (output,) = release(other).live_outputs
    assert "kept[0]" in output.where and output.kind.shape[0] == 1 and kept
    again = load(model)
    assert not release(again).live_outputs, "it has been found before: it is the twin's"


def test_arrays_of_the_caller_are_not_mistaken_for_outputs() -> None:
    mine = [np.zeros(1000), np.frombuffer(b"x" * 800, np.uint8), np.arange(10)[::2]]
    assert not live_outputs() and mine


def test_what_holds_the_native_session_is_named(model: Path) -> None:
    session = load(model)
    binding = session.io_binding()
    result = release(session)
    assert result.held_by == ("1 IOBinding",) and "still alive" in str(result) and binding
    session = load(model)
    inputs = session.get_inputs()
    assert "NodeArg" in release(session).held_by[0] and inputs[0].name == "x"


def test_anything_else_is_refused() -> None:
    with pytest.raises(UsageError, match="not a session"):
        release(42)


def test_without_glibc_it_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _: object())
    result = release(load(model))
    assert isinstance(result.trimmed, Unknown) and "not glibc" in result.trimmed.reason
    monkeypatch.setattr("sys.platform", "darwin")
    trimmed = trim()
    assert isinstance(trimmed, Unknown) and "darwin" in trimmed.reason
