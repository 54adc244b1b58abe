"""How is a PyTorch model loaded and called like any other? From a factory, a TorchScript file or an exported program.

A factory is code that the user names, and it is run. Files of weights are not: a `.pth` file is read with
`weights_only=True`, always, and safetensors hold nothing but numbers.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import re
import sys
import warnings
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from onnxmem.documents import Record
from onnxmem.errors import ModelError, missing_extra

FACTORY, SCRIPT, PROGRAM = "factory", "script", "program"
"""The three forms of a PyTorch model."""

_STATE_KEYS = ("state_dict", "model_state_dict", "model")


@dataclass(frozen=True)
class TorchSource(Record):
    """Where a PyTorch model comes from."""

    form: str
    where: str
    """`module:factory`, `file.py:factory`, or the path of a file."""
    weights: Path | None = None
    folder: Path | None = None
    """Where modules are looked for besides the installed ones."""
    seed: int = 0
    """For weights that the factory makes up."""


def import_torch() -> Any:
    """PyTorch, or the sentence that says how to get it."""
    try:
        return importlib.import_module("torch")
    except ImportError as error:
        raise missing_extra("torch", "torch") from error


def import_factory(source: TorchSource) -> Any:
    """The function that makes the model; its module is imported, and with it whatever that imports."""
    module_name, _, name = source.where.rpartition(":")
    if module_name.endswith(".py"):
        module = _module_of(Path(module_name))
    else:
        if source.folder is not None and str(source.folder) not in sys.path:
            sys.path.insert(0, str(source.folder))
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError as error:
            raise ModelError(f"there is no module '{error.name}', which '{source.where}' needs") from error
    factory = getattr(module, name, None)
    if not callable(factory):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        listed = ", ".join(known[:8]) or "none"
        raise ModelError(f"module '{module_name}' has no factory '{name}'", hint=f"it has: {listed}")
    return factory


def _module_of(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise ModelError(f"cannot read '{path}': there is no such file")
    # Its neighbours are its modules, as if it were run as a script.
    sys.path.insert(0, str(path.parent.absolute()))
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def load_module(source: TorchSource, factory: Any = None) -> Any:
    """The model, with its weights, ready to be called."""
    torch = import_torch()
    if source.form == SCRIPT:
        return torch.jit.load(source.where, map_location="cpu").eval()
    if source.form == PROGRAM:
        return torch.export.load(source.where).module()
    torch.manual_seed(source.seed)
    model = (factory or import_factory(source))()
    if not isinstance(model, torch.nn.Module):
        raise ModelError(f"'{source.where}' returned a {type(model).__name__}, which is no torch.nn.Module")
    if source.weights is not None:
        put_weights(model, read_weights(source.weights), source.weights.name)
    return model.eval()


def read_weights(path: Path) -> Mapping[str, Any]:
    """Tensors by name from a `.pth`, `.pt` or `.safetensors` file. Nothing in it is executed."""
    if path.suffix == ".safetensors":
        try:
            from safetensors.torch import load_file  # noqa: PLC0415
        except ImportError as error:
            raise missing_extra("safetensors", "torch") from error
        try:
            loaded: Any = load_file(path)
        except (MemoryError, OSError):
            raise
        except Exception as error:  # safetensors has an error of its own, which is no subclass of anything
            raise ModelError(f"'{path.name}' is not a safetensors file, or it is truncated") from error
    else:
        loaded = _unpickled(path)
        # Training scripts often put the weights beside the optimizer's state.
        for key in _STATE_KEYS:
            if isinstance(loaded, Mapping) and isinstance(loaded.get(key), Mapping):
                loaded = loaded[key]
    if not isinstance(loaded, Mapping):
        raise ModelError(f"'{path.name}' holds a {type(loaded).__name__}, not weights by name")
    if others := {type(key).__name__ for key in loaded if not isinstance(key, str)}:
        raise ModelError(f"'{path.name}' names weights by '{min(others)}', not by text")
    return loaded


def _unpickled(path: Path) -> Any:
    """PyTorch's own message is a page about how to execute the file after all: that is not offered here."""
    torch = import_torch()
    try:
        _check_stored(path)
        with warnings.catch_warnings(action="ignore"):  # about protocols, which a damaged file has any of
            return torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ModelError):
        raise
    except Exception as error:  # its reader takes a file for good: what it stumbles over may be anything
        if isinstance(error, MemoryError) or "allocate" in str(error):
            raise ModelError(f"'{path.name}' asks for more memory than there is") from error
        code = re.search(r"(?:GLOBAL|global) ([\w.]+)", str(error))
        if code and isinstance(error, pickle.UnpicklingError):
            why = f"it wants to call {code[1]}, and nothing in a file of weights is executed"
            raise ModelError(f"'{path.name}' holds more than weights: {why}; save model.state_dict()") from error
        raise ModelError(f"'{path.name}' is no file of weights that PyTorch wrote, or it is truncated") from error


def _check_stored(path: Path) -> None:
    """PyTorch compresses nothing, and would unpack whatever is: 3 MB may be 3 GB."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":  # as it did before archives: no part of that is compressed
            return
    with zipfile.ZipFile(path) as archive:
        parts = archive.infolist()
    compressed = any(part.compress_type != zipfile.ZIP_STORED for part in parts)
    if compressed or sum(part.file_size for part in parts) > path.stat().st_size:
        raise ModelError(
            f"'{path.name}' is compressed, and what PyTorch writes is not", hint="save it again with torch.save"
        )


def put_weights(model: Any, weights: Mapping[str, Any], name: str) -> None:
    """Give a model the weights of a file; an error if they are not its own."""
    wanted = model.state_dict()
    weights = _renamed(weights, wanted)
    missing, surplus = [key for key in wanted if key not in weights], [key for key in weights if key not in wanted]
    if missing or surplus:
        parts = [
            f"{len(keys)} {what} ({keys[0]} …)" for keys, what in ((missing, "missing"), (surplus, "unknown")) if keys
        ]
        raise ModelError(f"the weights in '{name}' are not this model's: {' and '.join(parts)}")
    for key, value in wanted.items():
        if not hasattr(weights[key], "shape"):
            kind = type(weights[key]).__name__
            raise ModelError(f"the weights in '{name}' are not this model's: '{key}' is a {kind}")
        if weights[key].shape != value.shape:
            shapes = f"{list(weights[key].shape)}, and the model has {list(value.shape)}"
            raise ModelError(f"the weights in '{name}' are not this model's: '{key}' is {shapes}")
        if kind := _unusual(weights[key]):
            raise ModelError(f"the weights in '{name}' are not this model's: '{key}' is {kind}")
    try:
        model.load_state_dict(weights)
    except RuntimeError as error:  # its message is a list of all weights
        raise ModelError(f"the weights in '{name}' cannot be copied into this model") from error


def _unusual(tensor: Any) -> str:
    """What keeps a tensor from being copied into a plain one; empty if nothing does."""
    if getattr(tensor, "is_meta", False):
        return "a shape without numbers"
    if getattr(tensor, "is_quantized", False):
        return "quantized"
    return "" if "strided" in str(getattr(tensor, "layout", "strided")) else "sparse"


def _renamed(weights: Mapping[str, Any], wanted: Mapping[str, Any]) -> Mapping[str, Any]:
    """The weights under the model's names, if all that differs is one prefix: a wrapper around either of them."""
    ours, theirs = set(wanted), set(weights)
    if not ours or not theirs or ours == theirs:
        return weights
    for prefix in {key.partition(".")[0] + "." for key in (min(ours), min(theirs))}:
        if {prefix + key for key in theirs} == ours:
            return {prefix + key: value for key, value in weights.items()}
        if {prefix + key for key in ours} == theirs:
            return {key.removeprefix(prefix): value for key, value in weights.items()}
    return weights


def call_with(model: Any, feeds: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The feeds as arguments: by name where the model has these names, else in their order."""
    spec = getattr(model, "_in_spec", None)
    if spec is not None:
        # An exported program takes its arguments exactly as it was exported: so many by place, the others by name.
        places, named = spec.children()
        count, values = places.num_children, list(feeds.values())
        keys = list(named.context or ())
        return values[:count], {key: feeds.get(key, value) for key, value in zip(keys, values[count:], strict=False)}
    names = _parameters(model)
    if all(name in names for name in feeds):
        return [], dict(feeds)
    return list(feeds.values()), {}


def _parameters(model: Any) -> Sequence[str]:
    if hasattr(model, "graph") and hasattr(model.forward, "schema"):
        return [argument.name for argument in model.forward.schema.arguments[1:]]
    try:
        return list(inspect.signature(model.forward).parameters)
    except (TypeError, ValueError):
        return []


def flat_outputs(value: Any, name: str = "output") -> list[tuple[str, Any]]:
    """All tensors in whatever a model returned, in order: tuples, lists, dictionaries and what nests them."""
    if value is None or isinstance(value, str):
        return []
    if hasattr(value, "detach"):
        return [(name, value)]
    if isinstance(value, Mapping):
        return [tensor for key, each in value.items() for tensor in flat_outputs(each, str(key))]
    if isinstance(value, tuple | list):
        return [tensor for k, each in enumerate(value) for tensor in flat_outputs(each, f"{name}_{k}")]
    return []


def as_array(tensor: Any) -> Any:
    """A tensor as a NumPy array over the same memory; types that NumPy does not have become float32."""
    try:
        return tensor.detach().cpu().numpy()
    except TypeError:
        return tensor.detach().cpu().float().numpy()
