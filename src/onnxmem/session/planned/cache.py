"""What one process leaves for the next: small files in the user's cache folder, which nobody needs to have.

Nothing here fails: what cannot be read is not there, and what cannot be written is not kept. And nothing is imported
that a session does without: `pathlib`, `tempfile` and `hashlib` are several MiB, in the middle of somebody's run.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from functools import cache

from onnxmem.user_cache import user_cache

try:
    from _blake2 import blake2b  # hashlib brings OpenSSL along
except ImportError:
    from hashlib import blake2b

Hash = blake2b
_LARGEST = 4 << 20
_MOST_BYTES, _MOST_FILES = 64 << 20, 2000
_UNFINISHED = ".tmp-"
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def digest(*parts: object) -> str:
    """A name for what these are."""
    return Hash(repr(parts).encode(), digest_size=16).hexdigest()


def read(name: str) -> bytes:
    """What `write` wrote under this name; empty if there is nothing, or something else.

    Only a file that is the user's own and that nobody else can change: links are not followed.
    """
    with suppress(OSError, ValueError):
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(f"{user_cache()}/{name}", flags)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid() or about.st_mode & _OTHERS_MAY_WRITE:
                return b""
            if about.st_size > _LARGEST:
                return b""
            checked, _, content = os.read(descriptor, about.st_size).partition(b"\n")
            if checked == _check(name, content):
                with suppress(OSError):
                    os.utime(descriptor)  # the files that nobody has read for the longest time go first
                return content
        finally:
            os.close(descriptor)
    return b""


def write(name: str, content: bytes) -> None:
    """Keep it, whole or not at all."""
    path = f"{user_cache()}/{name}"
    parent = os.path.dirname(path)  # noqa: PTH120
    if len(content) > _LARGEST // 2:
        return
    with suppress(OSError):
        for folder in (user_cache(), parent):  # one at a time: those above get the usual mode
            os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        temporary = f"{parent}/{_UNFINISHED}{os.urandom(8).hex()}"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            whole = _check(name, content) + b"\n" + content
            try:
                complete = os.write(descriptor, whole) == len(whole)
            finally:
                os.close(descriptor)
            if complete:
                os.rename(temporary, path)  # noqa: PTH104
        finally:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108  already gone, if all went well
        if parent != user_cache():
            _make_room(parent)


def remove(name: str) -> None:
    """Forget what is under this name."""
    with suppress(OSError):
        os.unlink(f"{user_cache()}/{name}")  # noqa: PTH108


def _check(name: str, content: bytes) -> bytes:
    """Says that a file is whole, and under the name that it was written under."""
    return Hash(content, digest_size=16, key=name.encode()[-64:]).hexdigest().encode()


@cache  # once per process: none writes many
def _make_room(parent: str) -> None:
    """Remove the oldest files of a folder in which there are too many."""
    with os.scandir(parent) as entries:
        files = [(entry.stat(follow_symlinks=False), entry.path) for entry in entries]
    bytes_, count = sum(about.st_size for about, _ in files), len(files)
    if bytes_ <= _MOST_BYTES and count <= _MOST_FILES:
        return
    # A quarter more than must be, so that not every process has to.
    for about, path in sorted(files, key=lambda file: file[0].st_mtime):
        if bytes_ <= _MOST_BYTES * 3 // 4 and count <= _MOST_FILES * 3 // 4:
            return
        bytes_, count = bytes_ - about.st_size, count - 1
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108


@cache
def machine() -> str:
    """A name for the kernels that are here: ONNX Runtime's build, and what the processor can do."""
    import onnxruntime  # noqa: PLC0415

    built: list[tuple[str, int]] = []
    with suppress(OSError), os.scandir(os.path.dirname(onnxruntime.__file__) + "/capi") as entries:  # noqa: PTH120
        built = sorted(
            (entry.name, entry.stat().st_size) for entry in entries
            if entry.name.startswith("onnxruntime_pybind11_state")
        )  # fmt: skip
    return digest(onnxruntime.__version__, built, _processor())


def _processor() -> list[str]:
    """What the processor can do: kernels choose their routines by that."""
    with suppress(OSError), open("/proc/cpuinfo") as file:  # noqa: PTH123
        return [line.strip() for line in file.read(16384).split("\n\n")[0].splitlines()
                if line.lower().startswith(("model name", "flags", "features", "cpu part"))]  # fmt: skip
    return []
