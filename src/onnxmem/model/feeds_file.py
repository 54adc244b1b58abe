"""Arrays in an `.npz` file: what they are, by their headers alone, and their contents once a model wants them.

A file of a few KiB may unpack to more than there is memory for: what it says of sizes is checked before it is believed.
"""

from __future__ import annotations

import io
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from onnxmem.errors import UsageError
from onnxmem.units import format_bytes

# What reading an archive raises that is none, or is damaged, or says it holds more than there is memory for.
_NO_ARRAYS = (ValueError, AttributeError, KeyError, TypeError, EOFError, RuntimeError, MemoryError, struct.error,
              zlib.error, zipfile.BadZipFile, SyntaxError, tokenize.TokenError)  # fmt: skip
_LONGEST_HEADER = 1 << 14
"""NumPy takes 10000 characters, but unpacks whatever length is stated before it looks at that."""
_UNPACKED = 2**30
"""So much a small file may unpack to."""
_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


class StoredFeed(NamedTuple):
    """An array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    member: zipfile.ZipInfo


def read_feed_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The shapes of the arrays in an `.npz` file of feeds."""
    return {name: feed.shape for name, feed in look_at_feeds(path).items()}


def with_given_shapes(
    path: Path, held: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[int, ...]]:
    """The shapes that a file of feeds holds and those given beside it, which may not say otherwise."""
    for name, shape in given.items():
        if name in held and held[name] != tuple(shape):
            asked, found = ("x".join(map(str, dims)) or "a scalar" for dims in (shape, held[name]))
            raise UsageError(
                f"input '{name}' is given as {asked}, but '{path.name}' holds {found}", hint="leave one of them out"
            )
    return {**held, **given}


def look_at_feeds(path: Path) -> dict[str, StoredFeed]:
    """The arrays in an `.npz` file, none of which is read."""
    with _opened(path) as archive:
        members = archive.infolist()
        _check_sizes(path, members)
        found = {member.filename.removesuffix(".npy"): _look(archive, member) for member in members}
    if len(found) < len(members):
        raise UsageError(f"'{path}' holds two arrays of the same name")
    return found


def read_feed(path: Path, feed: StoredFeed) -> npt.NDArray[Any]:
    """One of these arrays."""
    with _opened(path) as archive, archive.open(feed.member) as file:
        array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
        return array


@contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    if path.exists() and not path.is_file():
        # A pipe may never end.
        raise UsageError(f"cannot read '{path}': it is {'a directory' if path.is_dir() else 'not a file'}")
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror or 'it is not an .npz file'}") from error
    except _NO_ARRAYS as error:
        raise UsageError(f"'{path}' is not an .npz file of plain arrays") from error


def _check_sizes(path: Path, members: list[zipfile.ZipInfo]) -> None:
    again = "save it with numpy.savez"
    if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
        raise UsageError(f"'{path}' is compressed in a way that NumPy does not use", hint=again)
    total = sum(member.file_size for member in members)
    if total > max(path.stat().st_size, _UNPACKED):
        raise UsageError(f"'{path}' unpacks to {format_bytes(total)}", hint=f"{again}, which does not compress")


def _look(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> StoredFeed:
    with archive.open(member) as file:
        head = io.BytesIO(file.read(_LONGEST_HEADER))
    shape, _, dtype = _HEADERS[np.lib.format.read_magic(head)](head)
    held = member.file_size - head.tell()
    if dtype.hasobject or dtype.itemsize == 0 or any(size < 0 for size in shape):
        raise ValueError("not a plain array")
    if prod(shape) * dtype.itemsize != held:
        raise ValueError("it does not hold what its header says")
    return StoredFeed(shape, dtype, member)
