"""Writing files so that a kill at any moment leaves the old one or the new one, never half of either."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from onnxmem.errors import UsageError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary path beside `path` that becomes `path` when the block ends well, and vanishes when it does not."""
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=path.suffix)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}", hint="choose a folder you may write to") from error
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        # mkstemp makes private files; a result file should have the permissions any new file gets.
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    except OSError as error:
        raise UsageError(f"cannot write '{path}': {error.strerror}") from error
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file, atomically."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, content: str) -> None:
    """Write a whole text file, atomically."""
    write_bytes(path, content.encode())
