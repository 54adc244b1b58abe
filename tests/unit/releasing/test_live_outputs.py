"""Looking for live outputs disturbs no other thread, and finds what is in tuples all the same."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import pytest

from onnxmem._native.arena import tracked_objects
from onnxmem.releasing.live_outputs import live_outputs


class Kept(NamedTuple):
    output: Any
    more: Any


@pytest.mark.parametrize("when", ["afterwards", "when its class is asked for"])
def test_a_tuple_that_another_thread_is_filling_is_left_alone(when: str) -> None:
    begun, go_on, failed = threading.Event(), threading.Event(), []

    def items() -> Any:
        yield from range(1000)
        begun.set()
        go_on.wait(600)
        yield from range(1000)

    def fill() -> None:
        try:
            assert len(tuple(items())) == 2000
        except BaseException as error:
            failed.append(error)

    class Proxy:
        @property  # type: ignore[misc]
        def __class__(self) -> type:
            go_on.set()
            thread.join(600)
            return object

    # While the search holds what it found, the other thread goes on: Python refuses to lengthen a tuple others have.
    thread = threading.Thread(target=fill)
    thread.start()
    begun.wait(600)
    proxy = Proxy() if when == "when its class is asked for" else None
    every = tracked_objects()
    go_on.set()
    thread.join()
    assert failed == [] and len(every) > 1000 and (proxy is None or any(thing is proxy for thing in every))
    assert not any(thing is every or issubclass(type(thing), tuple) for thing in every)


@pytest.mark.parametrize(
    "keep",
    [
        lambda output: [(output,)],
        lambda output: [((output, []),)],  # tracked, and in another
        lambda output: [Kept(output, [])],
        lambda output: [{"a": ({"b": output},)}],
    ],
    ids=["tuple", "tuples", "named", "dicts"],
)
def test_what_is_in_tuples_is_found(model: Path, keep: Any) -> None:
    session = ort.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    before = len(live_outputs())
    kept = keep(session.run(None, {"x": np.ones((3, 64), np.float32)})[0])
    found = live_outputs()
    assert kept and len(found) == before + 1
