"""Scan and Loop: what they hold beside all that their bodies make."""

from __future__ import annotations

from onnxmem.scratch.kernel import Kernel, Scratch, elements

_STEP = 256
"""Arenas round each of a loop's many pieces up to a multiple of this."""


def scan(kernel: Kernel) -> Scratch:
    """Sequences along another axis than the first are turned, inputs before and outputs after; states take turns."""
    scanned = kernel.attribute("num_scan_inputs", 1)
    states = len(kernel.node.inputs) - scanned
    into: list[int] = kernel.attribute("scan_input_axes", [])
    out: list[int] = kernel.attribute("scan_output_axes", [])
    turned = [_input_bytes(kernel, states + place) for place, axis in enumerate(into) if axis != 0]
    outputs = [_output_bytes(kernel, states + place) for place, axis in enumerate(out) if axis != 0]
    length = kernel.input(states)[into[0] if into else 0]
    # The first step reads what was given, and the last writes into the output: only between them are there copies.
    copies = [_input_bytes(kernel, place) for place in range(states) for _ in range(min(length - 1, 2))]
    return Scratch((*turned, *outputs, *copies), before=len(turned))


def loop(kernel: Kernel) -> Scratch:
    """The number of the step, the condition, and the pieces that are put together at the end."""
    carried = len(kernel.node.inputs) - 2
    pieces = []
    for place in range(carried, len(kernel.node.outputs)):
        if kernel.has_output(place) and (steps := kernel.output(place)[0]):
            piece = _output_bytes(kernel, place) // steps
            pieces.append(steps * -(-piece // _STEP) * _STEP)
    return Scratch((8, 1, *(size for size in pieces if size)), before=2 + len(pieces))


def _input_bytes(kernel: Kernel, place: int) -> int:
    return kernel.width(place) * elements(kernel.input(place))


def _output_bytes(kernel: Kernel, place: int) -> int:
    return kernel.output_width(place) * elements(kernel.output(place))
