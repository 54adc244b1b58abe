"""Files by their names, sizes and hashes: what a package says of its own, and whether they are that.

A package may come from anywhere. So no name leads out of its folder; a link in it is followed only to a file whose
every byte is what the package says; and a device or a pipe, of which reading might never end, is no file.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from onnxmem.documents import Record, stored
from onnxmem.errors import ModelError

OnBytes = Callable[[int], None]
"""Told how many more bytes have been read or written."""

_CHUNK = 4 * 2**20
_LARGEST_TEXT = 64 * 2**20
"""Of files that are read whole: as numbers they are several times as large in memory."""
_AGAIN = "pack the model again"


@dataclass(frozen=True)
class StoredFile(Record):
    """A file by its name, size and hash."""

    name: str = stored("name")
    size: int = stored("bytes")
    sha256: str = stored("sha256")


class FileState(NamedTuple):
    """Which file is at a path, and how it was last changed."""

    device: int
    inode: int
    size: int
    changed: int
    moved: int
    """When it was last given another name, too."""

    def is_same(self, other: FileState) -> bool:
        """Whether it is the same file with the same content; its name and its owner may have changed."""
        return self[:4] == other[:4]


def state_of(path: Path) -> FileState:
    """What is at a path now; an OSError if nothing is, or something that is no file."""
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise OSError("it is not a file")
    return FileState(about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)


def read_text(path: Path) -> bytes:
    """The content of a small file. Not of a pipe: opening one would wait for somebody who writes into it."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    with open(descriptor, "rb", buffering=0) as file:  # noqa: PTH123
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise OSError(0, "it is not a file")
        if about.st_size > _LARGEST_TEXT:
            raise OSError(0, "it is too large")
        return file.readall()


def find_stored(folder: Path, file: StoredFile) -> FileState:
    """Which file it is that a package names; an error if it is not there in its full size."""
    path = folder / file.name
    try:
        state = state_of(path)
        linked = path.is_symlink()
    except (OSError, ValueError) as error:
        raise ModelError(f"the package '{folder}' has lost '{file.name}'", hint=_AGAIN) from error
    if state.size != file.size:
        raise ModelError(f"'{path}' has {state.size} bytes instead of {file.size}: it is damaged", hint=_AGAIN)
    if linked:  # as in a cache of downloads; but a stranger's may lead to what is not his
        check_stored(folder, file)
    return state


def check_stored(folder: Path, file: StoredFile, on_bytes: OnBytes | None = None) -> None:
    """An error, if the file is not what was written."""
    if hash_file(folder / file.name, on_bytes).sha256 != file.sha256:
        raise _damaged(folder, file)


def read_stored(folder: Path, file: StoredFile) -> bytes:
    """The content of a small file, if it is what was written: what was read is checked, and not read again."""
    try:
        content = read_text(folder / file.name)
    except OSError as error:
        raise ModelError(f"cannot read '{folder / file.name}': {error.strerror}") from error
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise _damaged(folder, file)
    return content


def _damaged(folder: Path, file: StoredFile) -> ModelError:
    return ModelError(f"'{folder / file.name}' is damaged: its contents are not what was written", hint=_AGAIN)


def hash_file(path: Path, on_bytes: OnBytes | None = None) -> StoredFile:
    """A file's name, size and hash."""
    total, size = hashlib.sha256(), 0
    try:
        with path.open("rb", buffering=0) as file:
            while chunk := file.read(_CHUNK):
                total.update(chunk)
                size += len(chunk)
                if on_bytes:
                    on_bytes(len(chunk))
    except OSError as error:
        raise ModelError(f"cannot read '{path}': {error.strerror}") from error
    return StoredFile(path.name, size, total.hexdigest())


def content_hash(files: Iterable[Path]) -> str:
    """One hash of all files of a model: of its contents, not of where they lie."""
    hashes = [hash_file(file) for file in files]
    if len(hashes) == 1:
        return hashes[0].sha256
    return hashlib.sha256("\n".join(sorted(f"{file.name} {file.sha256}" for file in hashes)).encode()).hexdigest()
