"""The zoo's image enhancer as a PyTorch model, to compare with: the same network, with the weights of an ONNX file.

`onnxmem compare enhancer.onnx onnxmem.torch.enhancer:make --weights enhancer.pth`
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError
from onnxmem.torch.model import import_torch

LEVELS, CHANNELS = 3, 24
_CONTRAST = 1.3


def make(levels: int = LEVELS, channels: int = CHANNELS) -> Any:
    """The network; its weights are random until some are put into it."""
    torch = import_torch()
    functional, conv = torch.nn.functional, torch.nn.Conv2d

    class Enhancer(torch.nn.Module):  # type: ignore[misc,name-defined]
        """What `onnxmem.zoo.enhancer` describes, layer by layer."""

        def __init__(self) -> None:
            super().__init__()
            widths = [channels << level for level in range(levels + 1)]
            before = [channels, *widths[:-1]]
            self.stem = conv(3, channels, 3, padding=1)
            self.down = torch.nn.ModuleList(conv(before[k], widths[k], 3, padding=1) for k in range(levels))
            self.bottom = conv(widths[-2], widths[-1], 3, padding=1)
            self.apart = torch.nn.ModuleList(
                conv(widths[k] + widths[k + 1], widths[k], 3, padding=1) for k in range(levels)
            )
            self.together = torch.nn.ModuleList(conv(widths[k], widths[k], 3, padding=1) for k in range(levels))
            self.head = conv(channels, 3, 1)

        def forward(self, image: Any) -> Any:
            """The picture, clearer."""
            x = functional.relu(self.stem(image))
            seen = []
            for layer in self.down:
                x = functional.relu(layer(x))
                seen.append(x)
                x = functional.avg_pool2d(x, 2)
            x = functional.relu(self.bottom(x))
            for level in reversed(range(levels)):
                x = torch.cat([seen[level], functional.interpolate(x, scale_factor=2.0, mode="nearest")], dim=1)
                x = functional.relu(self.together[level](functional.relu(self.apart[level](x))))
            means = image.mean(dim=(2, 3), keepdim=True).clamp(0.02, 1.0)
            gains = (_CONTRAST / 2 / means).clamp(0.7, 4.0)
            return (self.head(x) * gains + (1 - _CONTRAST) / 2).clamp(0.0, 1.0)

    return Enhancer()


def write_weights(model: Path, target: Path) -> None:
    """The weights of the zoo's model, as PyTorch saves them."""
    import onnx  # noqa: PLC0415
    from onnx import numpy_helper  # noqa: PLC0415

    torch = import_torch()
    found = {each.name: numpy_helper.to_array(each) for each in onnx.load(model).graph.initializer}
    state = {}
    for name in make().state_dict():
        layer, _, part = name.rpartition(".")
        where = f"{_place(layer)}.{part}"
        if where not in found:
            raise ModelError(f"'{model.name}' is not the zoo's enhancer: it has no '{where}'")
        state[name] = torch.from_numpy(found[where].copy())
    torch.save(state, target)


def _place(layer: str) -> str:
    """How a layer is called in the ONNX file."""
    kind, _, level = layer.partition(".")
    number = int(level or 0) + 1
    return {"stem": "conv_1", "down": f"down{number}/conv_1", "bottom": "bottom/conv_1", "apart": f"up{number}/conv_1",
            "together": f"up{number}/conv_2", "head": "conv_2"}[kind]  # fmt: skip
