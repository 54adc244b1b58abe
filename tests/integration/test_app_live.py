"""A session that a page loads, runs and unloads: what is seen of it, and that the page's own process stays light."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from onnxmem.app.live import Live
from tests.helpers import alive, wait_until_gone


def settle(check: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not check():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.02)


@pytest.fixture
def live(unet: Path, tmp_path: Path) -> Iterator[Live]:
    made = Live(unet, "stock", tmp_path)
    yield made
    made.close()


def test_memory_comes_with_loading_and_running_and_goes_with_the_process(live: Live) -> None:
    live.load({"height": 64, "width": 64})
    assert live.busy == "load"
    settle(lambda: not live.busy)
    assert live.loaded and not live.error
    loaded = live.rss
    live.run({"height": 256, "width": 256})
    settle(lambda: not live.busy)
    assert live.runs == 1 and not live.error
    # The activations of 256 × 256 pixels are in the arena, which stays.
    settle(lambda: (live.rss or 0) > (loaded or 0) + 20 * 2**20)
    live.trim()
    settle(lambda: not live.busy)
    live.unload()
    settle(lambda: not live.busy and live.rss == 0)
    assert not live.loaded and live.highest > (loaded or 0)
    document = live.document()
    assert [phase["name"] for phase in document["phases"]] == ["load", "run 1", "trim", "unload"]
    assert document["timeline"][-1]["rss_bytes"] == 0
    assert len(document["timeline"]) <= 300
    times = [sample["seconds"] for sample in document["timeline"]]
    assert times == sorted(times)


def test_what_goes_wrong_is_a_sentence_and_it_can_be_tried_again(live: Live, tmp_path: Path) -> None:
    bad = Live(tmp_path / "missing.onnx", "stock", tmp_path)
    bad.load({})
    settle(lambda: not bad.busy)
    assert "there is no such file" in bad.error and not bad.loaded
    live.load({})
    settle(lambda: not live.busy)
    live.run({"height": 63, "width": 64})
    settle(lambda: not live.busy)
    assert live.error and live.loaded
    live.run({"height": 64, "width": 64})
    settle(lambda: not live.busy)
    assert not live.error and live.runs == 1


def test_a_closed_tab_ends_it_even_while_it_loads(unet: Path, tmp_path: Path) -> None:
    live = Live(unet, "stock", tmp_path)
    live.load({})
    settle(lambda: live._pid is not None)
    pid = live._pid
    assert pid is not None and alive(pid)
    live.close()
    assert wait_until_gone(pid)
    settle(lambda: not live.busy)
    assert not live.loaded


def test_the_process_of_the_page_loads_no_runtime(unet: Path, tmp_path: Path) -> None:
    code = f"""
        import sys, time
        from pathlib import Path
        from onnxmem.app.live import Live
        live = Live(Path({str(unet)!r}), "stock", Path({str(tmp_path)!r}))
        for order in (lambda: live.load({{}}), lambda: live.run({{}}), live.unload):
            order()
            while live.busy:
                time.sleep(0.02)
            assert not live.error, live.error
        assert live.runs == 1 and live.highest > 50e6
        assert "onnxruntime" not in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True, timeout=120)
