"""The process in which a package with tiles is made for `InferenceSession(…, tile=True)`."""

from __future__ import annotations

from onnxmem.packing.pack import pack
from onnxmem.process.child import serve
from onnxmem.session.tile_cache import CacheTask


def _pack(task: CacheTask) -> None:
    pack(task.model, task.folder, tile=True, force=True)


def main() -> None:
    """Do one task for the parent."""
    serve(CacheTask, _pack)
