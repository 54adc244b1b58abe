"""A picture before and after: read, made smaller, and given to the example network, in a process of its own.

Nobody knows what is in a file that was uploaded, and neither a runtime nor a picture is to stay in the server.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnxmem.documents import Record
from onnxmem.errors import ModelError, UsageError
from onnxmem.process.child import run_child, serve

if TYPE_CHECKING:
    from onnxmem.app.scenes import Picture

FORMATS = ("png", "jpg", "jpeg")
PYTORCH = "PyTorch"
FACTORY = "onnxmem.torch.enhancer:make"
_PIXELS = 40_000_000
# The network halves a picture three times.
_MULTIPLE = 8
_TIME = 120.0


@dataclass(frozen=True, kw_only=True)
class Task(Record):
    """What to enhance, how large, with what, and where the pictures go."""

    picture: str
    """The name of a scene, or the path of a file."""
    side: int
    model: str
    runners: tuple[str, ...]
    """Modes, or PyTorch."""
    folder: str


@dataclass(frozen=True, kw_only=True)
class Enhanced(Record):
    """Where they are."""

    before: str
    after: Mapping[str, str]
    feeds: str
    """The picture as the network takes it, for measuring."""
    weights: str | None
    """Those of the PyTorch model."""


def enhance(task: Task) -> Enhanced:
    """Have a child do it; what is wrong with a picture is one sentence."""
    ended = run_child(__name__, task, timeout=_TIME)
    if ended.timed_out:
        raise ModelError(f"the picture was not done within {_TIME:.0f} seconds")
    if ended.code != 0:
        raise ModelError(ended.last_line)
    return ended.read(Enhanced)


def _work(task: Task) -> Enhanced:
    import numpy as np  # noqa: PLC0415

    folder = Path(task.folder)
    picture = read_picture(task.picture, task.side)
    before, feeds = folder / "before.png", folder / "picture.npz"
    _write(picture, before)
    image = np.ascontiguousarray(picture.transpose(2, 0, 1)[None])
    np.savez(feeds, image=image)
    weights, after = folder / "enhancer.pth", {}
    for number, runner in enumerate(task.runners):
        run = _with_torch if runner == PYTORCH else _with_session
        enhanced = run(task.model, runner, weights, image)
        after[runner] = str(folder / f"after-{number}.png")
        _write(enhanced[0].transpose(1, 2, 0), Path(after[runner]))
    made = str(weights) if weights.exists() else None
    return Enhanced(before=str(before), after=after, feeds=str(feeds), weights=made)


def read_picture(name: str, side: int) -> Picture:
    """A scene, or what is in a file: not larger than this, and cut to what the network takes."""
    from onnxmem.app.scenes import SCENES  # noqa: PLC0415

    picture = SCENES[name](side) if name in SCENES else _of_file(Path(name), side)
    height, width = (length // _MULTIPLE * _MULTIPLE for length in picture.shape[:2])
    if not height or not width:
        raise UsageError(f"the picture is too small: {picture.shape[1]} × {picture.shape[0]} pixels")
    return picture[:height, :width]


def _of_file(path: Path, side: int) -> Picture:
    import numpy as np  # noqa: PLC0415
    from PIL import Image, ImageOps  # noqa: PLC0415

    Image.MAX_IMAGE_PIXELS = _PIXELS
    try:
        with warnings.catch_warnings():
            # A small file may hold a picture that fills all memory: Pillow only warns of the first doubling.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(path, formats=("PNG", "JPEG")) as file:
                file.draft("RGB", (side, side))
                upright = ImageOps.exif_transpose(file).convert("RGB")
        upright.thumbnail((side, side))
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise UsageError(f"'{path.name}' has more than {_PIXELS:,} pixels") from error
    except (OSError, SyntaxError, ValueError) as error:
        raise UsageError(f"'{path.name}' is not a PNG or JPEG picture, or it is truncated") from error
    return np.asarray(upright, np.float32) / np.float32(255)


def _write(picture: Any, path: Path) -> None:
    import numpy as np  # noqa: PLC0415
    from PIL import Image  # noqa: PLC0415

    Image.fromarray(np.round(np.clip(picture, 0, 1) * 255).astype(np.uint8)).save(path)


def _with_session(model: str, mode: str, _weights: Path, image: Any) -> Any:
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    return InferenceSession(model, mode=mode).run(None, {"image": image})[0]


def _with_torch(model: str, _runner: str, weights: Path, image: Any) -> Any:
    from onnxmem.torch.enhancer import write_weights  # noqa: PLC0415
    from onnxmem.torch.model import FACTORY as FORM  # noqa: PLC0415
    from onnxmem.torch.model import TorchSource, as_array, import_torch, load_module  # noqa: PLC0415

    write_weights(Path(model), weights)
    torch = import_torch()
    network = load_module(TorchSource(FORM, FACTORY, weights))
    with torch.inference_mode():
        return as_array(network(torch.from_numpy(image)))


def main() -> None:
    """The child's."""
    serve(Task, _work)
