"""What is to be compared: a model file, a model in a mode, a package, or a PyTorch model in one of its forms."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from importlib.util import find_spec
from os import PathLike
from pathlib import Path

from onnxmem.errors import ModelError, UsageError
from onnxmem.session.modes import MODES, check_mode
from onnxmem.torch.model import FACTORY, PROGRAM, SCRIPT, TorchSource

KINDS = "an .onnx or .ort file, file+mode, a package, module:factory, a TorchScript file or a .pt2"
_FACTORY = re.compile(r"(?P<module>[A-Za-z_][\w.]*|.+\.py):[A-Za-z_]\w*")


@dataclass(frozen=True)
class Candidate:
    """One way to get the answer."""

    name: str
    kind: str
    """Who runs it: "onnx" or "torch"."""
    path: Path | None = None
    """The model's file or folder; None for a factory."""
    mode: str = "stock"
    source: TorchSource | None = None
    damage: str | None = None
    """Why its file cannot be read, where that shows before anything is loaded."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that are known without looking into them."""
        weights = self.source.weights if self.source else None
        return tuple(path for path in (self.path, weights) if path is not None)


def parse_candidates(texts: Iterable[str | PathLike[str]], *, weights: Path | None = None) -> tuple[Candidate, ...]:
    """All candidates, under names that differ."""
    named = [str(text) for text in texts]
    _check_there(named)
    found = [parse_candidate(text, weights=weights) for text in named]
    if weights is not None:
        if not weights.is_file():
            what = "it is a folder" if weights.is_dir() else "there is no such file"
            raise UsageError(f"cannot read '{weights}': {what}")
        if not any(each.source and each.source.form == FACTORY for each in found):
            raise UsageError("--weights is for a module:factory, and there is none")
    shown: list[Candidate] = []
    for each in found:
        same = sum(1 for other in found if other.name == each.name)
        path = each.path if each.path is not None and same > 1 else None
        mode = f"+{each.mode}" if each.mode != "stock" else ""
        name = f"{path}{mode}" if path is not None else each.name
        earlier = sum(1 for other in shown if other.name.partition(" #")[0] == name)
        shown.append(replace(each, name=f"{name} #{earlier + 1}" if earlier else name))
    return tuple(shown)


def _check_there(named: Sequence[str]) -> None:
    """A name that is mistyped is found before any work is done, and all of them at once."""
    absent = [text for text in named if is_absent(text)]
    modules = [text for text in absent if _FACTORY.fullmatch(text)]
    files = [text for text in absent if text not in modules]
    problems = []
    if files:
        listed = ", ".join(f"'{_file_of(text)}'" for text in files)
        problems.append(f"{listed}: {'there is no such file' if len(files) == 1 else 'there are no such files'}")
    for text in modules:
        where = text.rpartition(":")[0]
        what = f"file '{where}'" if where.endswith(".py") else f"module '{where.partition('.')[0]}'"
        problems.append(f"'{text}': there is no {what}")
    if problems:
        raise UsageError(f"cannot read {'; '.join(problems)}", hint=f"a candidate is {KINDS}")


def parse_candidate(text: str, *, weights: Path | None = None) -> Candidate:
    """What does this text name?"""
    path = Path(text)
    if path.exists():
        return _of_path(path, "stock", weights)
    before, plus, mode = text.rpartition("+")
    if plus and Path(before).exists():
        if Path(before).is_file():
            check_mode(mode, Path(before))
        return _of_path(Path(before), mode, weights)
    if _FACTORY.fullmatch(text):
        # A path is where the code is, not what the model is called.
        module, _, factory = text.rpartition(":")
        name = f"{Path(module).name}:{factory}" if module.endswith(".py") else text
        return Candidate(name, "torch", source=TorchSource(FACTORY, text, weights, Path.cwd()))
    raise UsageError(f"cannot read '{_file_of(text)}': there is no such file", hint=f"a candidate is {KINDS}")


def is_absent(text: str) -> bool:
    """Whether what this names is not there, as far as can be said without running any code."""
    if Path(text).exists() or Path(_file_of(text)).exists():
        return False
    return not (_FACTORY.fullmatch(text) and _module_is_there(text.rpartition(":")[0]))


def _module_is_there(module: str) -> bool:
    if module.endswith(".py"):
        return Path(module).is_file()
    # Only the package: what is in it is looked for by importing it, and importing runs its code.
    package = module.partition(".")[0]
    try:
        return PathFinder.find_spec(package, [str(Path.cwd())]) is not None or find_spec(package) is not None
    except (ImportError, ValueError):  # what is imported already need not say where it came from
        return True


def _file_of(text: str) -> str:
    """Without the mode behind it."""
    before, plus, mode = text.rpartition("+")
    named = plus and (Path(before).exists() or mode in {known.name for known in MODES})
    return before if named and not Path(text).exists() else text


def _of_path(path: Path, mode: str, weights: Path | None) -> Candidate:
    name = path.name if mode == "stock" else f"{path.name}+{mode}"
    if path.is_dir():
        return Candidate(name, "onnx", path, _package_mode(path) if mode == "stock" else mode)
    try:
        form = _torch_form(path)
    except ModelError as error:
        return Candidate(name, "torch", path, damage=str(error))
    if form is None:
        return Candidate(name, "onnx", path, mode)
    if mode != "stock":
        raise UsageError(f"modes are ONNX Runtime's, and '{path.name}' is PyTorch's")
    return Candidate(name, "torch", path, source=TorchSource(form, str(path)))


def _package_mode(folder: Path) -> str:
    """The mode a package was made for: it is loaded in that one unless another is named."""
    try:
        return str(json.loads((folder / "manifest.json").read_text())["mode"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"'{folder}' is a folder without a manifest.json", hint="make one with onnxmem pack"
        ) from error


def _torch_form(path: Path) -> str | None:
    """SCRIPT or PROGRAM for a file of PyTorch's, None for any other."""
    if path.suffix == ".safetensors":
        raise _weights_alone(path)
    if not zipfile.is_zipfile(path):
        if path.suffix in (".pt", ".pth", ".pt2"):
            raise ModelError(f"'{path}' is no archive that PyTorch wrote, or it is truncated")
        return None
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelError(f"'{path}' is an archive that cannot be read: {error}") from error
    if any(name.endswith(("models/model.json", "serialized_exported_program.json")) for name in names):
        return PROGRAM
    if any("/code/" in name for name in names):
        return SCRIPT
    if any(name.endswith("data.pkl") for name in names):
        raise _weights_alone(path)
    return PROGRAM if path.suffix == ".pt2" else None


def _weights_alone(path: Path) -> UsageError:
    return UsageError(
        f"'{path.name}' holds weights, but no model that they belong to",
        hint=f"name the model too: module:factory --weights {path.name}",
    )
