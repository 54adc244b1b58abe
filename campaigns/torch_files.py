"""Weights that PyTorch and safetensors write, where PyTorch is installed: nothing in them may be executed."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import pickle
import random
import zipfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from campaigns.hunt import Target, WrongAnswer
from campaigns.mutations import NUMBERS, TEXTS, changed_bytes, changed_json
from onnxmem.errors import ModelError
from onnxmem.torch.model import import_torch, put_weights, read_weights

_CALLS: tuple[tuple[Any, tuple[Any, ...]], ...] = (
    (os.system, ("touch executed",)),
    (open, ("executed", "w")),
    (eval, ("open('executed', 'w')",)),
    (os.mkdir, ("executed",)),
)


class _Called:
    """Calls something when it is unpickled."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return _CALLS[self.number % len(_CALLS)]


@cache
def _module() -> Any:
    return import_torch().nn.Linear(3, 2)


@cache
def _good() -> list[bytes]:
    torch, weights = import_torch(), _module().state_dict()
    from safetensors.torch import save  # noqa: PLC0415

    forms = []
    for content, zipped in ((weights, True), (weights, False), ({"state_dict": weights, "epoch": 3}, True)):
        buffer = io.BytesIO()
        torch.save(content, buffer, _use_new_zipfile_serialization=zipped)
        forms.append(buffer.getvalue())
    return [*forms, save(dict(weights))]


def _weights(number: int, folder: Path) -> Path:
    chance = random.Random(number)
    kind = chance.randrange(len(_good()))
    content = _good()[kind]
    how = chance.randrange(4)
    if kind == len(_good()) - 1:
        length = int.from_bytes(content[:8], "little")
        if how < 2:
            header = changed_json(content[8 : 8 + length].decode(), chance).encode()
            stated = len(header) if chance.random() < 0.8 else abs(chance.choice(NUMBERS)) % 2**64
            content = stated.to_bytes(8, "little") + header + content[8 + length :]
        else:
            content = changed_bytes(content, chance)
    elif how == 0:
        content = changed_bytes(content, chance)
    elif how == 1:
        content = _calling(content, number, chance)
    else:
        content = _inside(content, chance)
    path = folder / ("model.safetensors" if kind == len(_good()) - 1 else chance.choice(("model.pth", "model.pt")))
    path.write_bytes(content)
    return path


def _inside(content: bytes, chance: random.Random) -> bytes:
    """A part of the archive changed, with checksums that are right again."""
    buffer = io.BytesIO()
    if not zipfile.is_zipfile(io.BytesIO(content)):
        return changed_bytes(content, chance)
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        chosen = chance.choice([name for name in old.namelist() if "data" in name])
        for name in old.namelist():
            part = old.read(name)
            if name == chosen:
                part = changed_bytes(part, chance)
            new.writestr(chance.choice(TEXTS) + name if name == chosen and chance.random() < 0.1 else name, part)
    return buffer.getvalue()


def _calling(content: bytes, number: int, chance: random.Random) -> bytes:
    """What calls something, in the place of the weights, or beside them."""
    called = pickle.dumps({"weight": _Called(number)} if chance.random() < 0.5 else _Called(number), protocol=2)
    if chance.random() < 0.3 or not zipfile.is_zipfile(io.BytesIO(content)):
        return called
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, called if name.endswith("data.pkl") else old.read(name))
    return buffer.getvalue()


def _read(path: Path) -> None:
    torch = import_torch()
    found = read_weights(path)
    put_weights(_module(), found, path.name)
    for name, value in _module().state_dict().items():
        if not torch.equal(value.nan_to_num(), found[next(k for k in found if k.endswith(name))].nan_to_num()):
            raise WrongAnswer(f"'{name}' is not what the file says")
    json.dumps([str(key) for key in found])


TARGETS: Mapping[str, Target] = {"weights": Target(_weights, _read)} if importlib.util.find_spec("torch") else {}


def _obeying(path: Path) -> None:
    """A reader that is wrong: it executes what a file of weights says."""
    try:
        import_torch().load(path, weights_only=False)
    except Exception as error:
        raise ModelError("damaged") from error


PLANTED = {"weights": _obeying}
