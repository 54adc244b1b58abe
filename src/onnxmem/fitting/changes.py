"""What is the least to change so that more fits? Modes in the order of the work they ask for."""

from __future__ import annotations

from collections.abc import Sequence

from onnxmem.fitting.fitting import Change, ModeFit

WORK = {
    "stock": "as it is: nothing to change",
    "tuned": "two session options, no other file: onnxmem.InferenceSession(…, mode='tuned')",
    "planned": "another session class, no other file: onnxmem.InferenceSession(…, mode='planned')",
    "external": "a package with the weights in a file of their own, loaded as it is",
    "prepacked": "a package with packed weights, made on this kind of machine",
    "mapped": "a package whose weights are never packed: slower matrix products, and last bits may differ",
}
"""What each mode asks of a user, least first."""
PACKED = ("external", "mapped", "prepacked")
"""Those that need a package."""
_NEARLY = 0.95


def changes_of(modes: Sequence[ModeFit]) -> tuple[Change, ...]:
    """The modes that let more in than all that ask for less."""
    found: list[Change] = []
    for mode in in_order(modes):
        if mode.holds is not None and mode.holds > max((change.size for change in found), default=0):
            found.append(Change(mode=mode.mode, size=mode.holds, text=WORK[mode.mode]))
    return tuple(found)


def recommend(modes: Sequence[ModeFit]) -> str | None:
    """The mode with the least work of those that come near the largest size: the last per cent are not worth more."""
    sizes = {mode.mode: mode.holds for mode in in_order(modes) if mode.holds is not None}
    most = max(sizes.values(), default=0)
    return next((mode for mode, size in sizes.items() if size >= _NEARLY * most), None)


def in_order(modes: Sequence[ModeFit]) -> list[ModeFit]:
    """Least work first."""
    return sorted(modes, key=lambda mode: tuple(WORK).index(mode.mode))
