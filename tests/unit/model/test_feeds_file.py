"""What is read of files of feeds, and what is refused before it takes memory."""

from __future__ import annotations

import os
import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from onnxmem.errors import UsageError
from onnxmem.model.feeds_file import look_at_feeds, read_feed, read_feed_shapes


def test_feeds_file(tmp_path: Path) -> None:
    path = tmp_path / "feeds.npz"
    np.savez(path, x=np.zeros((1, 3, 8, 8)), scalar=np.array(3))
    assert read_feed_shapes(path) == {"x": (1, 3, 8, 8), "scalar": ()}


def test_files_that_are_no_feeds(tmp_path: Path) -> None:
    np.savez(tmp_path / "whole.npz", x=np.zeros(1000))
    np.save(tmp_path / "one.npy", np.zeros(3))
    np.savez(tmp_path / "objects.npz", x=np.array([{}], dtype=object))
    content = (tmp_path / "whole.npz").read_bytes()
    (tmp_path / "empty.npz").touch()
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "cut.npz").write_bytes(content[: len(content) // 2])
    method = content.index(b"PK\1\2") + 10  # of compression, where the archive lists what is in it
    (tmp_path / "packed.npz").write_bytes(content[:method] + b"\x63" + content[method + 1 :])
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1"
    with zipfile.ZipFile(tmp_path / "open.npz", "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + bytes(8))
    for name in (
        "open.npz",
        "one.npy",
        "objects.npz",
        "empty.npz",
        "packed.npz",
        "text.npz",
        "cut.npz",
        "gone.npz",
        ".",
    ):
        with pytest.raises(UsageError, match=r"npz|cannot read"):
            read_feed_shapes(tmp_path / name)


def _array(shape: str, content: bytes, kind: str = "<f4") -> bytes:
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


def _archive(path: Path, content: bytes, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("x.npy", content)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_only_compression_that_numpy_uses(tmp_path: Path, method: int) -> None:
    with pytest.raises(UsageError, match="compressed in a way"):
        look_at_feeds(_archive(tmp_path / "x.npz", _array("(1,)", bytes(4)), method))


@pytest.mark.parametrize(
    "content",
    [
        _array("(1099511627776,)", b""),
        _array("(-1,)", b""),
        _array("(1,)", bytes(8)),
        _array("(9,)", b"", "|V0"),
        b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + bytes(2**20),
        b"hello",
    ],
    ids=["more", "negative", "less", "nothing", "header", "none"],
)
def test_an_array_that_is_not_what_its_header_says(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UsageError, match=r"not an \.npz file of plain arrays"):
        look_at_feeds(_archive(tmp_path / "x.npz", content))


def test_arrays_are_not_unpacked_to_be_looked_at(tmp_path: Path) -> None:
    path = _archive(tmp_path / "x.npz", _array(f"({2**23},)", bytes(2**25)))
    tracemalloc.start()
    try:
        found = look_at_feeds(path)
        assert found["x"].shape == (2**23,) and tracemalloc.get_traced_memory()[1] < 2**22
    finally:
        tracemalloc.stop()
    assert read_feed(path, found["x"]).nbytes == 2**25


def test_a_small_file_that_unpacks_to_more_than_a_model_wants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("onnxmem.model.feeds_file._UNPACKED", 2**20)
    with pytest.raises(UsageError, match=r"unpacks to 2.0 MiB"):
        look_at_feeds(_archive(tmp_path / "x.npz", _array(f"({2**19},)", bytes(2**21))))
    whole = _archive(tmp_path / "whole.npz", _array(f"({2**19},)", bytes(2**21)), zipfile.ZIP_STORED)
    assert look_at_feeds(whole)["x"].shape == (2**19,)


def test_neither_pipes_nor_two_arrays_of_one_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    with zipfile.ZipFile(tmp_path / "two.npz", "w") as archive:
        for name in ("x", "x.npy"):
            archive.writestr(name, _array("(1,)", bytes(4)))
    for name in ("pipe.npz", "two.npz"):
        with pytest.raises(UsageError, match=r"not a file|two arrays"):
            look_at_feeds(tmp_path / name)
