"""How often do two comparisons of the same candidates name different winners? On made-up noise, for all to repeat.

python -m benchmarks.winners
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Callable
from dataclasses import dataclass

from onnxmem.comparison.result import Figure
from onnxmem.comparison.rows import MARGIN, UNDECIDED, WINNER, decide

RATIOS = (1.0, 1.04, 1.08, 1.1, 1.13, 1.2, 1.35, 1.6, 2.0, 3.0, 5.0)
"""What the second candidate truly takes: from the same to far more, and many near the margin, where it is hard."""
REPEAT, LIMIT = 5, 10
Noise = Callable[[random.Random, float], Callable[[], tuple[float, float]]]
"""From a source of chance and a scale to something that gives the factors on both candidates in one round."""


def quiet(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """Each sample is off by itself."""
    return lambda: (math.exp(chance.gauss(0, scale)), math.exp(chance.gauss(0, scale)))


def heavy(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """A few samples are far off: Student's distribution with two degrees of freedom."""

    def one() -> float:
        off = scale * chance.gauss(0, 1) / math.sqrt(max(chance.expovariate(1), 1e-9))
        return math.exp(max(-3.0, min(3.0, off)))

    return lambda: (one(), one())


def spikes(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """One sample in ten takes three times as much."""

    def one() -> float:
        return math.exp(chance.gauss(0, scale)) * (3 if chance.random() < 0.1 else 1)

    return lambda: (one(), one())


def drift(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """The machine gets slower or faster from round to round, for both."""
    level = 0.0

    def both() -> tuple[float, float]:
        nonlocal level
        level += chance.gauss(0, 3 * scale)
        return math.exp(level + chance.gauss(0, scale)), math.exp(level + chance.gauss(0, scale))

    return both


def bursts(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """In three rounds of ten, something else runs: both take three times as long."""

    def both() -> tuple[float, float]:
        level = 3.0 if chance.random() < 0.3 else 1.0
        return level * math.exp(chance.gauss(0, scale)), level * math.exp(chance.gauss(0, scale))

    return both


def modes(chance: random.Random, scale: float) -> Callable[[], tuple[float, float]]:
    """One candidate takes either of two amounts, 17 % apart: as threads happen to allocate."""

    def both() -> tuple[float, float]:
        jump = 1.17 if chance.random() < 0.5 else 1.0
        return jump * math.exp(chance.gauss(0, scale / 5)), math.exp(chance.gauss(0, scale / 5))

    return both


NOISES: tuple[Noise, ...] = (quiet, heavy, spikes, drift, bursts, modes)


def by_ranges(draw: Callable[[], tuple[float, float]], ratio: float, count: int = 3) -> tuple[str, str | None]:
    """The rule that was replaced: three rounds; extremes may not overlap, nor medians be within the margin."""
    rounds = [draw() for _ in range(count)]
    samples = {"a": [a for a, _ in rounds], "b": [b * ratio for _, b in rounds]}
    better, worse = sorted(samples, key=lambda name: statistics.median(samples[name]))
    slack = sum((max(each) - min(each)) / 2 for each in samples.values()) if count < 5 else 0.0
    middle = statistics.median(samples[better])
    apart = min(samples[worse]) - max(samples[better]) > slack
    won = apart and statistics.median(samples[worse]) - middle > MARGIN * middle
    return ("winner", better) if won else ("same", None)


def by_ranges_of_ten(draw: Callable[[], tuple[float, float]], ratio: float) -> tuple[str, str | None]:
    """The same with as many rounds as the new one may take: it is not only that there are more."""
    return by_ranges(draw, ratio, LIMIT)


def by_intervals(draw: Callable[[], tuple[float, float]], ratio: float) -> tuple[str, str | None]:
    """The rule of `onnxmem compare`, with as many rounds as it would take."""
    rounds: list[tuple[float, float]] = []
    while True:
        rounds += [draw() for _ in range(REPEAT)]
        samples = {"a": Figure(tuple(a for a, _ in rounds)), "b": Figure(tuple(b * ratio for _, b in rounds))}
        decision = decide(samples, MARGIN)
        if decision.verdict != UNDECIDED or len(rounds) >= LIMIT:
            return str(decision.verdict), decision.best[0] if decision.verdict == WINNER else None


@dataclass(frozen=True)
class Agreement:
    """Of many pairs of comparisons, as parts of one."""

    contradict: float
    """One names a winner, and the other says there is none, or another."""
    named_once: float
    """One names a winner, and the other says that it cannot tell."""
    undecided: float
    """Of single comparisons."""


def agreement(
    rule: Callable[[Callable[[], tuple[float, float]], float], tuple[str, str | None]],
    noise: Noise,
    scale: float,
    *,
    pairs: int = 200,
    seed: int = 1,
) -> Agreement:
    """Compare twice, many times, over all ratios."""
    chance = random.Random(seed)
    contradict = named_once = undecided = 0
    for ratio in RATIOS:
        for _ in range(pairs):
            (first, one), (second, other) = (rule(noise(chance, scale), ratio) for _ in range(2))
            unsure = UNDECIDED in (first, second)
            contradict += one != other and not unsure
            named_once += one != other and unsure
            undecided += first == UNDECIDED
    total = len(RATIOS) * pairs
    return Agreement(contradict / total, named_once / total, undecided / total)


if __name__ == "__main__":
    print("| noise | scale | by ranges | by ranges, 10 rounds | by intervals | winner or undecided | undecided |")
    print("|---|---|---|---|---|---|---|")
    for each in NOISES:
        for size in (0.02, 0.1):
            ranges, more, intervals = (
                agreement(rule, each, size) for rule in (by_ranges, by_ranges_of_ten, by_intervals)
            )
            shown = (
                ranges.contradict,
                more.contradict,
                intervals.contradict,
                intervals.named_once,
                intervals.undecided,
            )
            print(f"| {each.__name__} | {size:.0%} | {' | '.join(f'{part:.1%}' for part in shown)} |")
