"""The result of packing: where the package is, and what it says about itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.documents import inlined
from onnxmem.result import Result
from onnxmem.session.package import SCHEMA, Manifest, Package


@dataclass(frozen=True, kw_only=True)
class Packed(Result):
    """A package that was written or verified: its manifest, and where it is."""

    SCHEMA = SCHEMA

    folder: Path
    manifest: Manifest = inlined()

    @property
    def package(self) -> Package:
        """The package itself."""
        return Package(self.folder, self.manifest)

    def __repr__(self) -> str:
        return f"<Packed {self.folder}, mode {self.manifest.mode}>"

    def derived(self) -> Mapping[str, Any]:
        """The size of all its files."""
        return {"bytes": self.package.size}
