"""Networks that no prediction was made with: architectures of `transformers`, with random weights, exported by PyTorch.

    PYTHON -m benchmarks.exported_models            export those that are missing; PYTHON has torch, transformers, onnx
    PYTHON -m benchmarks.exported_models swin       only these

What a process takes depends on the graph and on shapes, not on what the weights are, so nothing is downloaded. The
files are kept in the cache of `benchmarks.real_models`; who only wants to use them needs neither package.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.real_models import FetchError, cache_folder
from onnxmem.files import replacing

Shapes = dict[str, tuple[int, ...]]
_OPSET = 18


@dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """One architecture: which, how large, and at which sizes it is tried."""

    key: str
    about: str
    model: str
    """The class in `transformers` …"""
    config: str
    """… and that of its settings, which are its own but for these."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tokens: int = 0
    """How many there are, for an input that is tokens."""
    free: Mapping[int, str] = field(default_factory=dict)
    """The dimensions of the input that have no number, by position."""
    shapes: Mapping[str, tuple[int, ...]]
    """The sizes, small to large; the second is the usual one."""
    scripted: bool = False
    """Whether the older exporter is asked, which traces, and makes other graphs."""

    @property
    def input(self) -> str:
        """The name of its input."""
        return "tokens" if self.tokens else "x"


_BATCH = {0: "batch"}
_IMAGE = {0: "batch", 2: "height", 3: "width"}
_TEXT = {0: "batch", 1: "length"}


def _batches(*shape: int) -> Mapping[str, tuple[int, ...]]:
    return {f"batch{n}": (n, *shape) for n in (1, 2, 4)}


def _images(*sizes: int) -> Mapping[str, tuple[int, ...]]:
    return {f"{n}px": (1, 3, n, n) for n in sizes}


def _lengths(*sizes: int) -> Mapping[str, tuple[int, ...]]:
    return {f"length{n}": (1, n) for n in sizes}


_MODELS = (
    ExportedModel(
        key="convnext",
        about="depthwise convolutions and layer norms, channels moved",
        model="ConvNextModel",
        config="ConvNextConfig",
        free=_BATCH,
        shapes=_batches(3, 224, 224),
    ),
    ExportedModel(
        key="swin",
        about="attention in shifted windows",
        model="SwinModel",
        config="SwinConfig",
        free=_BATCH,
        shapes=_batches(3, 224, 224),
    ),
    ExportedModel(
        key="vit",
        about="patches and plain attention",
        model="ViTModel",
        config="ViTConfig",
        settings={"hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
        free=_BATCH,
        shapes=_batches(3, 224, 224),
    ),
    ExportedModel(
        key="segformer",
        about="attention over images, static",
        model="SegformerForSemanticSegmentation",
        config="SegformerConfig",
        shapes={"static": (1, 3, 512, 512)},
    ),
    ExportedModel(
        key="mobilenet_v2",
        about="inverted residuals, traced",
        model="MobileNetV2Model",
        config="MobileNetV2Config",
        free=_IMAGE,
        shapes=_images(160, 224, 384),
        scripted=True,
    ),
    ExportedModel(
        key="efficientnet",
        about="squeeze and excitation, traced",
        model="EfficientNetModel",
        config="EfficientNetConfig",
        settings={"width_coefficient": 1.0, "depth_coefficient": 1.0, "hidden_dim": 1280},
        free=_IMAGE,
        shapes=_images(160, 224, 384),
        scripted=True,
    ),
    ExportedModel(
        key="regnet",
        about="grouped convolutions",
        model="RegNetModel",
        config="RegNetConfig",
        free=_BATCH,
        shapes=_batches(3, 224, 224),
    ),
    ExportedModel(
        key="distilbert",
        about="text, traced",
        model="DistilBertModel",
        config="DistilBertConfig",
        tokens=30522,
        free=_TEXT,
        shapes=_lengths(64, 256, 512),
        scripted=True,
    ),
    ExportedModel(
        key="gpt2",
        about="a decoder and its large output",
        model="GPT2LMHeadModel",
        config="GPT2Config",
        settings={"n_layer": 6, "n_embd": 384, "n_head": 6, "use_cache": False},
        tokens=50257,
        free=_TEXT,
        shapes=_lengths(64, 128, 256),
    ),
    ExportedModel(
        key="t5_encoder",
        about="relative positions, RMS norms",
        model="T5EncoderModel",
        config="T5Config",
        tokens=32128,
        free=_TEXT,
        shapes=_lengths(64, 256, 512),
    ),
    ExportedModel(
        key="wav2vec2",
        about="convolutions over sound, then attention",
        model="Wav2Vec2Model",
        config="Wav2Vec2Config",
        settings={"num_hidden_layers": 4, "hidden_size": 384, "num_attention_heads": 6, "intermediate_size": 1536},
        free={1: "samples"},
        shapes={f"{s}s": (1, 16000 * s) for s in (1, 2, 4)},
    ),
    ExportedModel(
        key="whisper_encoder",
        about="convolutions over sound, static",
        model="WhisperEncoder",
        config="WhisperConfig",
        settings={"encoder_layers": 4, "d_model": 384, "encoder_attention_heads": 6, "encoder_ffn_dim": 1536},
        shapes={"static": (1, 80, 3000)},
    ),
)


def exported_models() -> tuple[ExportedModel, ...]:
    """All of them, whether or not they have been exported."""
    return _MODELS


def find(key: str) -> ExportedModel:
    """The model of that name."""
    return next(model for model in _MODELS if model.key == key)


def fetch(key: str) -> Path:
    """The path of a model's file."""
    path = _place(key)
    if not path.is_file():
        raise FetchError(
            f"'{key}' has not been exported",
            hint=f"with a Python that has torch and transformers: python -m benchmarks.exported_models {key}",
        )
    return path


def _place(key: str) -> Path:
    return cache_folder() / "exported" / f"{key}.onnx"


def export(model: ExportedModel) -> Path:
    """Write a model's file, the same graph every time."""
    torch, transformers = import_module("torch"), import_module("transformers")

    class Single(torch.nn.Module):  # type: ignore[misc, name-defined]
        """One input by position, one output: what the model answers first."""

        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Any) -> Any:
            return self.inner(x, return_dict=False)[0]

    torch.manual_seed(0)
    config = getattr(transformers, model.config)(**model.settings)
    package = transformers.models.whisper.modeling_whisper if model.model == "WhisperEncoder" else transformers
    network = Single(getattr(package, model.model)(config)).eval()
    shape = list(model.shapes.values())[min(1, len(model.shapes) - 1)]
    example = torch.randint(0, model.tokens, shape) if model.tokens else torch.randn(shape)
    path = _place(model.key)
    path.parent.mkdir(parents=True, exist_ok=True)
    named: dict[str, Any] = {"input_names": [model.input], "output_names": ["y"], "opset_version": _OPSET}
    if model.scripted:
        named |= {"dynamic_axes": {model.input: dict(model.free)}, "dynamo": False}
    else:
        free = dict.fromkeys(model.free, torch.export.Dim.DYNAMIC)
        named |= {"dynamic_shapes": (free,), "dynamo": True, "external_data": False}
    with replacing(path) as temporary, torch.no_grad():
        torch.onnx.export(network, (example,), str(temporary), **named)
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    """Export what is missing."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.exported_models", description=main.__doc__)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only these (default: all)")
    failed = 0
    for key in parser.parse_args(arguments).keys or [model.key for model in _MODELS]:
        if _place(key).is_file():
            continue
        print(key, file=sys.stderr, flush=True)
        try:
            export(find(key))
        except Exception as error:
            print(f"{key}: {error!r}"[:600], flush=True)
            failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
