"""Writing files so that a kill at any moment leaves the old one or the new one, never half of either."""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onnxmem.errors import UsageError

MAY_WRITE = "choose a folder you may write to"


def check_file(path: Path) -> None:
    """Raise UsageError unless this is a file that can be read to its end: a device may have none."""
    if not path.is_file():
        what = "it is a folder" if path.is_dir() else "it is not a file" if path.exists() else "there is no such file"
        raise UsageError(f"cannot read '{path}': {what}")


def partial_prefix(path: Path) -> str:
    """How the name begins of what is to become `path`, beside it. Nobody else names files or folders like this."""
    return f".{path.name[:100]}.partial-"


def check_folder_of(path: Path) -> None:
    """Raise UsageError unless a file can be made there."""
    try:
        # Tried, not asked: permissions are only one of the reasons why it may not work.
        tempfile.TemporaryFile(dir=path.parent, prefix=partial_prefix(path)).close()
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}", hint=MAY_WRITE) from error


def clear_left_behind(parent: Path, prefix: str, before: Callable[[Path], None] | None = None) -> None:
    """Remove files and folders of this prefix that nobody has locked: a killed process left them.

    `before` is called with each of them before it goes.
    """
    for entry in [entry for entry in parent.iterdir() if entry.name.startswith(prefix)]:
        with suppress(OSError):
            about = entry.stat(follow_symlinks=False)
            ours = stat.S_ISREG(about.st_mode) or stat.S_ISDIR(about.st_mode)
            if about.st_uid != os.getuid() or not ours:
                continue
            # Should it be a pipe by now: opening one would wait for somebody who writes into it.
            lock = os.open(entry, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if not os.path.samestat(os.fstat(lock), entry.lstat()):
                    continue  # a third process was faster, and what has the name now is somebody's
                if before:
                    before(entry)
                if entry.is_dir():
                    shutil.rmtree(entry, ignore_errors=True)
                else:
                    entry.unlink()
            finally:
                os.close(lock)


def unused(path: Path) -> Path:
    """A name for what is to become `path`, beside it. Known before it is there, so that no signal comes in between."""
    return path.parent / f"{partial_prefix(path)}{secrets.token_hex(8)}{path.suffix}"


def _locked(path: Path) -> int:
    """A new private file; its lock says that somebody is at it."""
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with suppress(OSError):  # some file systems have no locks: then nobody clears there, either
            fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # another process, which was clearing at that moment, was faster


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that becomes `path` when the block ends well, and vanishes when it does not.

    A kill leaves it, and the next call removes it.
    """
    with suppress(OSError):
        clear_left_behind(path.parent, partial_prefix(path))
    temporary = unused(path)
    handle: int | None = None
    try:
        try:
            handle = _locked(temporary)
        except OSError as error:
            raise UsageError(f"cannot write '{path}': {error.strerror}", hint=MAY_WRITE) from error
        yield temporary
        # It is private; a result file should have the permissions any new file gets.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        with suppress(OSError):  # it may never have been made, which has been said
            temporary.unlink()
        if handle is not None:
            os.close(handle)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole text file, atomically."""
    write_bytes(path, content.encode())
