"""How much do N processes of one model take together? Measured with all of them alive, mode by mode."""

from __future__ import annotations

from onnxmem.share.share import share
from onnxmem.share.sharing import Group, Sharing, Worker

__all__ = ["Group", "Sharing", "Worker", "share"]
