"""Fourier transforms: nothing for powers of two, a convolution in a power of two otherwise."""

from __future__ import annotations

from onnxmem.scratch.kernel import NOTHING, Kernel, Scratch


def fourier_transform(kernel: Kernel) -> Scratch:
    """DFT."""
    data, output = kernel.input(0), kernel.output()
    # Since opset 20 the axis is an input, whose default is the same for signals of one dimension.
    axis = kernel.attribute("axis", 1 if len(data) == 3 else -2)
    # Half a spectrum comes back as a whole signal.
    if kernel.attribute("inverse", 0) and kernel.attribute("onesided", 0):
        return _transforms(output[axis], kernel.width(0))
    return _transforms(_length(kernel, output[axis]) if kernel.has_input(1) else data[axis], kernel.width(0))


def short_time_fourier_transform(kernel: Kernel) -> Scratch:
    """STFT: one transform per frame."""
    length = kernel.input(2)[0] if kernel.has_input(2) else _length(kernel, kernel.output()[2], onesided=1)
    return _transforms(length, kernel.width(0))


def _length(kernel: Kernel, frequencies: int, onesided: int = 0) -> int:
    """What was transformed; of half a spectrum that cannot be told exactly, and most lengths are even."""
    return 2 * (frequencies - 1) if kernel.attribute("onesided", onesided) else frequencies


def _transforms(length: int, width: int) -> Scratch:
    if length & (length - 1) == 0:
        return NOTHING
    size = 2 * width * (1 << (2 * length - 2).bit_length())
    # The chirp and its transform stay, and one more buffer helps to make them; then there are two for each transform.
    return Scratch((size, size, size, -3, size, size))
