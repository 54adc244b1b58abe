"""Which mode should I use? Decided here, once, for the terminal, the page and the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from onnxmem.documents import Record
from onnxmem.session.modes import find_mode
from onnxmem.units import format_bytes, format_percent

# Totals that are this close are the same: then the mode that always has the baseline's outputs is the better one.
_CLOSE = 1.02


class Choice(NamedTuple):
    """A mode with the largest number of workers that was measured."""

    mode: str
    workers: int
    total_pss: int
    same_outputs: bool
    """Whether its outputs were those of the baseline, which are its own if there is none to compare with."""


@dataclass(frozen=True, kw_only=True)
class Recommendation(Record):
    """A mode, and what to know before using it."""

    mode: str
    text: str
    trade_off: str
    avoid_if: str


def recommend(choices: Sequence[Choice], baseline: str | None) -> tuple[Recommendation, ...]:
    """The mode with the least memory among those whose outputs are the baseline's; then the least of all, if less."""
    if not choices:
        return ()
    before = next((each for each in choices if each.mode == baseline), None)
    equal = [each for each in choices if each.same_outputs or (before is None and find_mode(each.mode).exact)]
    best = _least(equal) if equal else None
    least = _least(choices)
    found = [_recommended(best, before)] if best else []
    if best is None or least.total_pss * _CLOSE < best.total_pss:
        found.append(_least_of_all(least, before))
    return tuple(found)


def _least(choices: Sequence[Choice]) -> Choice:
    least = min(each.total_pss for each in choices)
    near = [each for each in choices if each.total_pss <= least * _CLOSE]
    return min(near, key=lambda each: (not find_mode(each.mode).exact, each.total_pss))


def _recommended(best: Choice, before: Choice | None) -> Recommendation:
    if best is before:
        return _made(best, f"Keep {best.mode}: no other mode that was measured takes less with the same outputs.")
    same = ", with the same outputs" if before else ""
    return _made(best, f"Use {best.mode}: {_takes(best, before)}{same}.")


def _least_of_all(least: Choice, before: Choice | None) -> Recommendation:
    differ = f" Its outputs differ from those of {before.mode}." if before and not least.same_outputs else ""
    return _made(least, f"{least.mode} takes the least memory: {_takes(least, before)}.{differ}")


def _takes(choice: Choice, before: Choice | None) -> str:
    who = "1 worker takes" if choice.workers == 1 else f"{choice.workers} workers together take"
    takes = f"{who} {format_bytes(choice.total_pss)}"
    if before is None or before.total_pss <= choice.total_pss:
        return takes
    saved = before.total_pss - choice.total_pss
    return f"{takes}, {format_bytes(saved)} ({format_percent(saved / before.total_pss)}) less than {before.mode}"


def _made(choice: Choice, text: str) -> Recommendation:
    mode = find_mode(choice.mode)
    return Recommendation(mode=choice.mode, text=text, trade_off=mode.costs, avoid_if=mode.avoid)
