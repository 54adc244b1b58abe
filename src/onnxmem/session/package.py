"""What is a package? A folder with an optimized model, its weights ready to be mapped, and a manifest that says for
which ONNX Runtime and CPU, made from what, and with which hashes.

Opening one reads the manifest and looks at sizes; `verify_package` reads every byte.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError, RuntimeUnsupported, UsageError
from onnxmem.session.cpu import Cpu, this_cpu
from onnxmem.session.modes import Mode, Setting, find_mode

SCHEMA = "onnxmem.package/1"
MANIFEST = "manifest.json"
PLANS = "plans.json"
WEIGHTS = "weights.bin"
OnBytes = Callable[[int], None]
"""Told how many more bytes have been read or written."""

_CHUNK = 4 * 2**20


@dataclass(frozen=True)
class StoredFile:
    """A file by its name, size and hash."""

    name: str
    size: int
    sha256: str

    def document(self) -> dict[str, Any]:
        """As JSON."""
        return {"name": self.name, "bytes": self.size, "sha256": self.sha256}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> StoredFile:
        """The one that `document` wrote."""
        return cls(str(document["name"]), int(document["bytes"]), str(document["sha256"]))


@dataclass(frozen=True)
class Weights:
    """Where the weights of a package are, in bytes."""

    raw: int
    """In the file, as the model has them."""
    packed: int
    """In the file, as kernels want them; they are used instead of the raw ones, which then are not resident."""
    inline: int
    """Inside the graph, and so in each process's heap."""

    @property
    def used(self) -> int:
        """One copy of what a session computes with is about this: raw bytes, wherever they are."""
        return self.raw + self.inline

    def document(self) -> dict[str, int]:
        """As JSON."""
        return {"raw_bytes": self.raw, "packed_bytes": self.packed, "inline_bytes": self.inline}

    @classmethod
    def of(cls, document: Mapping[str, int]) -> Weights:
        """The one that `document` wrote."""
        return cls(document["raw_bytes"], document["packed_bytes"], document["inline_bytes"])


@dataclass(frozen=True)
class Manifest:
    """What a package says about itself."""

    mode: str
    model: str
    """The file that a session is made from."""
    source: tuple[StoredFile, ...]
    """What it was made from: the model, and its external weights."""
    source_path: str
    onnxruntime: str
    onnxmem: str
    cpu: Cpu
    options: Mapping[str, Setting]
    config: Mapping[str, str]
    files: tuple[StoredFile, ...]
    weights: Weights
    verified: Mapping[str, Any]
    """With which inputs the outputs were found equal to which others."""
    notes: tuple[str, ...] = ()
    order: Mapping[str, Any] | None = None
    """The order of the nodes, if one was asked for, and what runs need in it; None: ONNX Runtime's own."""
    always_read: tuple[tuple[int, int], ...] = ()
    """What every run reads of the weights' file: offsets and lengths."""
    plans: tuple[Mapping[str, Any], ...] = ()
    """For which input shapes there are plans, and how much each takes; the plans themselves are in PLANS."""

    def text(self) -> str:
        """The manifest as it is stored, with a hash of itself."""
        document = {
            "schema": SCHEMA,
            "mode": self.mode,
            "model": self.model,
            "onnxruntime": self.onnxruntime,
            "onnxmem": self.onnxmem,
            "cpu": self.cpu.document(),
            "options": dict(self.options),
            "config": dict(self.config),
            "files": [file.document() for file in self.files],
            "weights": self.weights.document(),
            "source": {"path": self.source_path, "files": [file.document() for file in self.source]},
            "verified": dict(self.verified),
            "notes": list(self.notes),
            "order": None if self.order is None else dict(self.order),
            "plans": [dict(plan) for plan in self.plans],
            "always_read": [list(part) for part in self.always_read],
        }
        return _render({**document, "manifest_sha256": hashlib.sha256(_render(document).encode()).hexdigest()})

    @classmethod
    def parse(cls, text: str, path: Path) -> Manifest:
        """Read a manifest; a single changed byte is an error."""
        damaged = ModelError(f"'{path}' is damaged: it is not what onnxmem wrote", hint="pack the model again")
        try:
            document = json.loads(text)
            schema = document["schema"]
            if schema != SCHEMA and str(schema).startswith("onnxmem.package/"):
                raise RuntimeUnsupported(f"'{path}' is {schema}, and this onnxmem reads {SCHEMA}", hint="pack it again")
            stated = document.pop("manifest_sha256")
            # Both the hash and the very bytes: white space or the order of keys is not in the hash.
            whole = _render({**document, "manifest_sha256": stated})
            if stated != hashlib.sha256(_render(document).encode()).hexdigest() or whole != text:
                raise damaged
            return cls(
                mode=document["mode"],
                model=document["model"],
                source=tuple(map(StoredFile.of, document["source"]["files"])),
                source_path=document["source"]["path"],
                onnxruntime=document["onnxruntime"],
                onnxmem=document["onnxmem"],
                cpu=Cpu.of(document["cpu"]),
                options=document["options"],
                config=document["config"],
                files=tuple(map(StoredFile.of, document["files"])),
                weights=Weights.of(document["weights"]),
                verified=document["verified"],
                notes=tuple(document["notes"]),
                order=document.get("order"),
                plans=tuple(document.get("plans", ())),
                always_read=tuple((int(at), int(size)) for at, size in document.get("always_read", ())),
            )
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise damaged from error


@dataclass(frozen=True)
class Package:
    """A package on disk."""

    folder: Path
    manifest: Manifest

    @property
    def model(self) -> Path:
        """The file that a session is made from."""
        return self.folder / self.manifest.model

    @property
    def mode(self) -> Mode:
        """How it is meant to be loaded."""
        return find_mode(self.manifest.mode)

    @property
    def files(self) -> tuple[Path, ...]:
        """Its files, without the manifest."""
        return tuple(self.folder / file.name for file in self.manifest.files)

    @property
    def size(self) -> int:
        """All of them together."""
        return sum(file.size for file in self.manifest.files)

    def plans(self) -> list[dict[str, Any]]:
        """The plans made with it, for `plans` of a planned session; a single changed byte is an error."""
        file = next((file for file in self.manifest.files if file.name == PLANS), None)
        if file is None:
            return []
        check_stored(self.folder, file)
        plans: list[dict[str, Any]] = json.loads((self.folder / PLANS).read_text())
        return plans

    def check_here(self, onnxruntime: str, cpu: Cpu | None = None) -> None:
        """An error, if this ONNX Runtime or CPU is another than the one it was made for."""
        made = self.manifest
        hint = f"make it again here: onnxmem pack {made.source_path} -o {self.folder} --repack"
        if made.onnxruntime != onnxruntime:
            raise RuntimeUnsupported(
                f"the package '{self.folder}' was made with ONNX Runtime {made.onnxruntime}, and this is {onnxruntime}",
                hint=hint,
            )
        difference = made.cpu.difference(cpu or this_cpu())
        if difference:
            raise RuntimeUnsupported(
                f"the package '{self.folder}' was made for another kind of CPU than this one: {difference}", hint=hint
            )


def is_package(path: Path) -> bool:
    """Whether there is a package, whole or damaged."""
    return (path / MANIFEST).is_file()


def open_package(folder: Path) -> Package:
    """The package in a folder: its manifest is checked, and that its files are there in their full size."""
    path = folder / MANIFEST
    try:
        text = path.read_bytes().decode()
    except FileNotFoundError as error:
        raise UsageError(
            f"'{folder}' is no package: it has no {MANIFEST}", hint="make one: onnxmem pack MODEL -o FOLDER"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"'{path}' is damaged: it is not text", hint="pack the model again") from error
    package = Package(folder, Manifest.parse(text, path))
    for file in package.manifest.files:
        # Names are ours, but a package may come from anywhere: it must not point out of its folder.
        if Path(file.name).name != file.name:
            raise ModelError(f"'{path}' names a file outside of its folder: '{file.name}'")
        try:
            size = (folder / file.name).stat().st_size
        except OSError as error:
            raise ModelError(f"the package '{folder}' has lost '{file.name}'", hint="pack the model again") from error
        if size != file.size:
            raise ModelError(
                f"'{folder / file.name}' has {size} bytes instead of {file.size}: it is damaged",
                hint="pack the model again",
            )
    return package


def verify_package(folder: Path | str, on_bytes: OnBytes | None = None) -> Package:
    """Is every byte of this package what was written? Raises the reason if it is not."""
    package = open_package(Path(folder))
    for file in package.manifest.files:
        check_stored(package.folder, file, on_bytes)
    return package


def check_stored(folder: Path, file: StoredFile, on_bytes: OnBytes | None = None) -> None:
    """An error, if the file is not what was written."""
    if stored(folder / file.name, on_bytes).sha256 != file.sha256:
        raise ModelError(
            f"'{folder / file.name}' is damaged: its contents are not what was written", hint="pack the model again"
        )


def stored(path: Path, on_bytes: OnBytes | None = None) -> StoredFile:
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


def _render(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
