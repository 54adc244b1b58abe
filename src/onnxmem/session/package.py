"""What is a package? A folder with an optimized model, its weights ready to be mapped, and a manifest that says for
which ONNX Runtime and CPU, made from what, and with which hashes. It may hold more graphs over the same weights, each
rewritten for certain input shapes.

Opening one reads the manifest and looks at sizes; `verify_package` reads every byte.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any

from onnxmem.commands import path_word
from onnxmem.documents import Record, stored
from onnxmem.errors import ModelError, PlanError, RuntimeUnsupported, UsageError
from onnxmem.session.argument import Argument
from onnxmem.session.graph_files import check_locations
from onnxmem.session.modes import Mode, Setting, check_mode, find_mode
from onnxmem.session.packed_graphs import (
    KEEP_CONFIG,
    KEEP_OPTIONS,
    DeclaredTensor,
    PackageGraph,
    PackedPlan,
    Reduced,
    TiledGraph,
    TileSettings,
)
from onnxmem.session.stored_files import (
    FileState,
    OnBytes,
    StoredFile,
    check_stored,
    find_stored,
    read_stored,
    read_text,
)

SCHEMA = "onnxmem.package/1"
MANIFEST = "manifest.json"
PLANS = "plans.json"
WEIGHTS = "weights.bin"

# What ONNX Runtime's kernels look at when they choose how to lay out weights. Others (crypto, virtualization …) differ
# between machines on which a package works.
_X86 = (
    "sse4_1 ssse3 avx avx2 fma f16c avx512f avx512cd avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
    "avx_vnni amx_tile amx_int8 amx_bf16"
)
_ARM = "asimd asimdhp asimddp fphp i8mm bf16 svei8mm svebf16 sve sve2 sme sme2"
_LOOKED_AT = frozenset(f"{_X86} {_ARM}".split())


@dataclass(frozen=True)
class Cpu(Record):
    """A kind of CPU: its architecture, and the instructions that kernels choose by."""

    machine: str
    features: tuple[str, ...]

    def difference(self, other: Cpu) -> str:
        """How another CPU differs from this one, in words; empty if it does not."""
        if self.machine != other.machine:
            return f"it is {other.machine}, not {self.machine}"
        lacks, has = set(self.features) - set(other.features), set(other.features) - set(self.features)
        parts = [f"it {verb} {', '.join(sorted(names))}" for verb, names in (("lacks", lacks), ("has", has)) if names]
        return " and ".join(parts)


@cache  # the system takes a while to write it down
def this_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Cpu:
    """The CPU of this machine. Where the system does not list its features, none are known and none are compared."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "feat"))), [])
    return Cpu(platform.machine(), tuple(sorted(_LOOKED_AT.intersection(flags))))


@dataclass(frozen=True)
class Source(Record):
    """What a package was made from: where the model was, and its files, external weights included."""

    path: str
    files: tuple[StoredFile, ...]


@dataclass(frozen=True, kw_only=True)
class Weights(Record):
    """Where the weights of a package are, in bytes."""

    raw: int = stored("raw_bytes")
    """In the file, as the model has them."""
    packed: int = stored("packed_bytes")
    """In the file, as kernels want them; they are used instead of the raw ones, which then are not resident."""
    inline: int = stored("inline_bytes")
    """Inside the graph, and so in each process's heap."""

    @property
    def used(self) -> int:
        """One copy of what a session computes with is about this: raw bytes, wherever they are."""
        return self.raw + self.inline


@dataclass(frozen=True, kw_only=True)
class PackedInput(Record):
    """An input that outputs were compared on."""

    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Verified(Record):
    """With which inputs the outputs were found equal to which others."""

    reference: str
    inputs: Mapping[str, PackedInput]
    seed: int
    outputs_sha256: str


@dataclass(frozen=True, kw_only=True)
class PackedOrder(Record):
    """The order a package runs in, and what it takes."""

    asked: str
    name: str
    """The order that was kept: the one asked for, or one that ONNX Runtime makes itself."""
    default_bound: int = stored("default_bound_bytes")
    """What a run of the source needs at least in ONNX Runtime's order, scratch included, outputs not: by its trace."""
    bound: int = stored("bound_bytes")
    """The same for the package in this one. ONNX Runtime's order of what it has written is not that of the source."""
    verified: bool
    """Whether the order that was written is the one that nodes ran in. If not, it is not in the package."""


@dataclass(frozen=True, kw_only=True)
class Manifest(Record):
    """What a package says about itself."""

    mode: str
    model: str
    """The file that a session is made from."""
    onnxruntime: str
    onnxmem: str
    cpu: Cpu
    options: Mapping[str, Setting]
    config: Mapping[str, str]
    files: tuple[StoredFile, ...]
    weights: Weights
    source: Source
    verified: Verified
    notes: tuple[str, ...] = ()
    order: PackedOrder | None = None
    """The order of the nodes, if one was asked for; None: ONNX Runtime's own."""
    plans: tuple[PackedPlan, ...] = ()
    """For which input shapes there are plans; the plans themselves are in PLANS."""
    always_read: tuple[tuple[int, int], ...] = ()
    """What every run reads of the weights' file: offsets and lengths."""
    always_mapped: tuple[tuple[int, int], ...] = ()
    """What of that is packed: a session that cannot map it must not run."""
    tile: TileSettings | None = None
    reduced: tuple[Reduced, ...] = ()
    """For each of the input shapes that tiles were sought for, what was done and what it gave."""
    tiled: tuple[TiledGraph, ...] = ()
    """Graphs that are used instead of `model` for their input shapes."""
    batch_budget: int | None = stored("batch_budget_bytes", default=None)
    """Batches are run a few rows at a time where they would take more than this."""
    inputs: tuple[DeclaredTensor, ...] = ()
    outputs: tuple[DeclaredTensor, ...] = ()
    """What `model` declares, where other graphs are loaded in its place, which are for fixed shapes."""

    def text(self) -> str:
        """The manifest as it is stored, with a hash of itself."""
        return sign({"schema": SCHEMA, **self.document()})

    @classmethod
    def parse(cls, text: str, path: Path) -> Manifest:
        """Read a manifest; a single changed byte is an error."""
        try:
            return _parsed(text)
        except _OtherSchema as error:
            raise RuntimeUnsupported(
                f"'{path}' is {error}, and this onnxmem reads {SCHEMA}", hint="pack it again"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError, UsageError) as error:
            raise ModelError(
                f"'{path}' is damaged: it is not what onnxmem wrote", hint="pack the model again"
            ) from error


class _OtherSchema(Exception):
    """A manifest is of another schema than is read here."""


@lru_cache(maxsize=8)  # a service that opens the same packages again and again checks each manifest once
def _parsed(text: str) -> Manifest:
    document = json.loads(text)
    schema = document["schema"]
    if schema != SCHEMA and str(schema).startswith("onnxmem.package/"):
        raise _OtherSchema(schema)
    stated = document.pop("manifest_sha256")
    # Both the hash and the very bytes: white space or the order of keys is not in the hash.
    if stated != _hash(document) or _render({**document, "manifest_sha256": stated}) != text:
        raise ValueError("another hash")
    return Manifest.from_document(document)


@dataclass(frozen=True)
class Package:
    """A package on disk."""

    folder: Path
    manifest: Manifest
    states: tuple[FileState, ...] = field(default=(), compare=False)
    """Which files they were that were looked at."""

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
        return self._plans_in(PLANS)

    def graph(self, tiled: TiledGraph | None) -> PackageGraph:
        """What a session needs to load one of its graphs; None: its own."""
        made = self.manifest
        if tiled is None:
            return PackageGraph(self.model, made.options, made.config, made.always_read, made.always_mapped, self.plans)
        options, config = {**made.options, **KEEP_OPTIONS}, {**made.config, **KEEP_CONFIG}
        plans = partial(self._plans_in, tiled.plan)
        model, read, mapped = self.folder / tiled.model, tiled.always_read, tiled.always_mapped
        return PackageGraph(model, options, config, read, mapped, plans)

    def declared(self, graph: TiledGraph, names: Sequence[str]) -> tuple[list[Argument], list[Argument]]:
        """Its inputs and outputs, for any shapes; `names` are those of the graph that serves some of them."""
        made = self.manifest
        if [each.name for each in (*made.inputs, *made.outputs)] != list(names):
            what = f"'{self.folder / graph.model}' has other inputs or outputs than its package"
            raise ModelError(what, hint="pack the model again")
        return [each.argument() for each in made.inputs], [each.argument() for each in made.outputs]

    def _plans_in(self, name: str) -> list[dict[str, Any]]:
        file = next((file for file in self.manifest.files if file.name == name), None)
        if file is None:
            return []
        content = read_stored(self.folder, file)
        try:
            plans: list[dict[str, Any]] = json.loads(content)
        except (ValueError, RecursionError) as error:
            raise PlanError(f"'{self.folder / name}' holds no plans: it is not JSON") from error
        if not isinstance(plans, list):
            raise PlanError(f"'{self.folder / name}' holds no plans: it is not a list")
        return plans

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """An error, if its files are others at the end of the block, or already are. What opens them by their names
        would have got some that nobody has looked at: of another package, or what a link was led to meanwhile."""
        before = self._look()
        if self.states and not all(now.is_same(then) for now, then in zip(before, self.states, strict=True)):
            raise self._replaced("since it was opened")
        yield
        if self._look() != before:
            raise self._replaced("while a session was made from it")

    def _look(self) -> tuple[FileState, ...]:
        return tuple(find_stored(self.folder, file) for file in self.manifest.files)

    def _replaced(self, when: str) -> ModelError:
        return ModelError(f"the package '{self.folder}' was changed {when}", hint="open it again")

    def check_here(self, onnxruntime: str, cpu: Cpu | None = None) -> None:
        """An error, if this ONNX Runtime or CPU is another than the one it was made for."""
        made = self.manifest
        source = quote(path_word(made.source.path))
        hint = f"make it again here: onnxmem pack {source} -o {quote(str(self.folder))} --repack"
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


def mode_for(mode: str | None, model: Path) -> str:
    """The mode asked for, if it can load this model; else a package's own, and for all others stock.

    Tiles and budgets are for planned runs: a package that was made with them is meant to be run so.
    """
    if mode is None and is_package(model):
        manifest = open_package(model).manifest
        return manifest.mode if manifest.tile is None else "planned"
    return check_mode(mode or "stock", model).name


def open_package(folder: Path) -> Package:
    """The package in a folder: its manifest is checked, and that its files, and no others, are there in full size."""
    path = folder / MANIFEST
    try:
        text = read_text(path).decode()
    except FileNotFoundError as error:
        raise UsageError(
            f"'{folder}' is no package: it has no {MANIFEST}", hint="make one: onnxmem pack MODEL -o FOLDER"
        ) from error
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ModelError(f"'{path}' is damaged: it is not text", hint="pack the model again") from error
    manifest = Manifest.parse(text, path)
    _check_names(manifest, path)
    states = {file.name: find_stored(folder, file) for file in manifest.files}
    for name in (manifest.model, *(graph.model for graph in manifest.tiled)):
        check_locations(folder / name, states[name], states)
    return Package(folder, manifest, tuple(states.values()))


def _check_names(made: Manifest, path: Path) -> None:
    """A package may come from anywhere: it must not point out of its folder, nor say what else a session does."""
    names = [file.name for file in made.files]
    for name in names:
        if Path(name).name != name:
            raise ModelError(f"'{path}' names a file outside of its folder: '{name[:80]}'")
    if len(set(names)) < len(names):
        raise ModelError(f"'{path}' names a file twice")
    for name in (made.model, *(name for graph in made.tiled for name in (graph.model, graph.plan))):
        if name not in names:
            raise ModelError(f"'{path}' names a file that is none of its own: '{name[:80]}'")
    # Others could have ONNX Runtime write files, or load libraries.
    for name, value in (*made.options.items(), *made.config.items()):
        if name not in (*KEEP_OPTIONS, *KEEP_CONFIG) or not isinstance(value, str):
            raise ModelError(f"'{path}' sets '{name[:80]}', which packages do not")


def verify_package(folder: Path | str, on_bytes: OnBytes | None = None) -> Package:
    """Is every byte of this package what was written? Raises the reason if it is not."""
    package = open_package(Path(folder))
    for file in package.manifest.files:
        check_stored(package.folder, file, on_bytes)
    return package


def sign(document: Mapping[str, Any]) -> str:
    """A manifest's document as text, with a hash of itself."""
    plain = {key: value for key, value in document.items() if key != "manifest_sha256"}
    return _render({**plain, "manifest_sha256": _hash(plain)})


def _hash(document: Mapping[str, Any]) -> str:
    return hashlib.sha256(_render(document).encode()).hexdigest()


def _render(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"
