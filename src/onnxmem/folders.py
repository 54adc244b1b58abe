"""Folders that are written whole or not at all, and folders for the time being that are not left behind.

Both are locked while they are used, so that the next call can tell those that a killed process left, and remove them.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from onnxmem.errors import UsageError
from onnxmem.files import MAY_WRITE, clear_left_behind, partial_prefix, unused
from onnxmem.locked_folder import make_locked
from onnxmem.user_cache import user_cache

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2
# Nobody else names a folder like this: what is not locked is removed.
_TEMPORARY = "onnxmem.tmp-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


def cache_folder() -> Path:
    """`user_cache` as a path."""
    return Path(user_cache())


def private_cache() -> Path:
    """The same, made if it is not there; an error unless it is this user's own. Nobody else can write into it then."""
    folder = cache_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if about.st_uid != os.geteuid():
            raise PermissionError(errno.EACCES, "it belongs to another user")
        if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            folder.chmod(0o700)
    except OSError as error:
        hint = "set XDG_CACHE_HOME to a folder of your own"
        raise UsageError(f"cannot use the cache folder '{folder}': {error.strerror}", hint=hint) from error
    return folder


@contextmanager
def temporary_folder(beside: Path | None = None) -> Iterator[Path]:
    """A private folder, in the system's temporary directory or beside a file, that is gone when the block ends.

    Also by Ctrl-C, and by SIGTERM where that is turned into an exception, as on the command line. A kill leaves the
    folder, and the next call removes it.
    """
    parent = _parent(beside)
    _clear(parent, _TEMPORARY)
    folder = parent / f"{_TEMPORARY}{secrets.token_hex(8)}"
    lock: int | None = None
    try:
        try:
            while lock is None:
                lock = make_locked(str(folder))
        except OSError as error:
            raise _no_room(parent, beside, error) from error
        yield folder
    except OSError as error:
        # NumPy says only how much it could not write.
        if error.errno in (*_FULL, None):
            raise _no_room(parent, beside, error) from error
        raise
    finally:
        _remove(folder, lock)


@contextmanager
def temporary_file() -> Iterator[IO[bytes]]:
    """A file without a name, gone with whoever has it open."""
    parent = _parent(None)
    try:
        file = tempfile.TemporaryFile(dir=parent)  # noqa: SIM115  its errors are not those of the block
    except OSError as error:
        raise _no_room(parent, None, error) from error
    with file:
        yield file


def _parent(beside: Path | None) -> Path:
    try:
        return Path(tempfile.gettempdir()) if beside is None else beside.parent
    except OSError as error:  # it tries them all, and none can be written
        raise UsageError(
            "there is no temporary directory that can be written, or all of them are full",
            hint="set TMPDIR to a folder with room",
        ) from error


def _no_room(parent: Path, beside: Path | None, error: OSError) -> UsageError:
    if beside is not None:
        return UsageError(f"cannot write '{beside}': {error.strerror or error}")
    why = "is full" if error.errno in (*_FULL, None) else f"cannot be written: {error.strerror}"
    return UsageError(f"the temporary directory '{parent}' {why}", hint="set TMPDIR to a folder with room")


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A new folder beside `path` that becomes `path` when the block ends well, and vanishes when it does not.

    It is locked while the block runs. Those of earlier calls that were killed are not, and are removed first.
    """
    _clear(path.parent, partial_prefix(path))
    temporary = unused(path)
    lock: int | None = None
    try:
        try:
            lock = make_locked(str(temporary))
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}", hint=MAY_WRITE) from error
        if lock is None:
            raise UsageError(f"another process is writing '{path}'", hint="try again when it is done")
        yield temporary
        # It is private; this one is for workers that may run as other users.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o777 & ~umask)
        sync(temporary)
        _put(temporary, path)
        sync(path.parent)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror or error}") from error
    finally:
        _remove(temporary, lock)  # after an exchange this is the old folder


def sync(path: Path) -> None:
    """Wait until a file or folder is on the disk: a rename must not get there before what it names."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(folder: Path, lock: int | None) -> None:
    """Remove a folder and unlock it, also where it was not made to the end."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except KeyboardInterrupt:  # which ends the process, and not this
        shutil.rmtree(folder, ignore_errors=True)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _clear(parent: Path, prefix: str) -> None:
    try:
        clear_left_behind(parent, prefix)
    except OSError as error:
        raise UsageError(f"cannot write into '{parent}': {error.strerror}") from error


def _put(temporary: Path, path: Path) -> None:
    """Give a finished folder its name, in one step where the system can."""
    if not path.is_dir() or not any(path.iterdir()):
        temporary.rename(path)
        return
    if sys.platform == "linux":
        swap = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)  # since glibc 2.28
        names = os.fsencode(temporary), os.fsencode(path)
        if swap and swap(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0:
            return
    # Some file systems cannot exchange names. Then there is a moment with no folder at all, but never half of one.
    aside = unused(path)
    path.rename(aside)
    temporary.rename(path)
    shutil.rmtree(aside, ignore_errors=True)
