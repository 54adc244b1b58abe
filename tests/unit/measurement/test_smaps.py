"""What memory is made of."""

from __future__ import annotations

import mmap
import threading
from pathlib import Path

import pytest

from onnxmem.measurement import probes
from onnxmem.measurement.smaps import KINDS, Kind, classify
from onnxmem.unknown import Unknown

MIB = 2**20


def kinds(*files: Path) -> dict[str, Kind]:
    found = classify(files)
    assert not isinstance(found, Unknown)
    assert tuple(kind.name for kind in found) == KINDS
    return {kind.name: kind for kind in found}


def test_a_mapped_model_is_told_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "weights.bin").write_bytes(bytes(8 * MIB))
    link = tmp_path / "link.bin"
    link.symlink_to(tmp_path / "weights.bin")
    with link.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped:
        assert sum(mapped[page] for page in range(0, len(mapped), mmap.PAGESIZE)) == 0
        with_model, without = kinds(link), kinds()
    assert with_model["model files"].rss == 8 * MIB
    assert with_model["model files"].anon == 0
    assert without["model files"].rss == 0
    moved = without["libraries and other files"].rss - with_model["libraries and other files"].rss
    assert moved == 8 * MIB


@pytest.mark.parametrize(
    ("flags", "kind"),
    [(mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, "arenas"), (mmap.MAP_SHARED | mmap.MAP_ANONYMOUS, "shared memory")],
)
def test_large_anonymous_blocks_are_arenas_unless_shared(flags: int, kind: str) -> None:
    before = kinds()[kind]
    block = mmap.mmap(-1, 16 * MIB, flags=flags)
    # Page by page: so many bytes at once would be a block of their own, which the C library may keep in an arena.
    for page in range(0, len(block), mmap.PAGESIZE):
        block[page] = 1
    after = kinds()[kind]
    assert after.rss - before.rss == pytest.approx(16 * MIB, abs=MIB)
    block.close()


def test_waiting_threads_have_stacks() -> None:
    ready, done = threading.Event(), threading.Event()

    def wait() -> None:
        ready.set()
        done.wait()

    before = kinds()["stacks"].virtual
    thread = threading.Thread(target=wait)
    thread.start()
    ready.wait()
    grown = max(kinds()["stacks"].virtual - before for _ in range(20))
    done.set()
    thread.join()
    assert grown >= 4 * MIB


def test_everything_is_counted_once() -> None:
    total = sum(kind.rss for kind in kinds().values())
    rss = probes.read().rss
    assert isinstance(rss, int)
    assert total == pytest.approx(rss, rel=0.05)


def test_no_smaps_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probes, "PROC", tmp_path)
    found = classify()
    assert isinstance(found, Unknown) and "smaps" in found.reason
