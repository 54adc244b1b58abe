"""What is a model fed when its runs are recorded for plans? Several inputs of each shape: sizes may depend on data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from onnxmem.measurement.feeds import Feeds, make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Signature

Shapes = Mapping[str, tuple[int, ...]]
"""One combination of input shapes."""

# Runs that are recorded for a plan, if inputs are generated.
_RECORDED = 3


def feeds_for_plans(
    signature: Signature, scenario: Scenario, given: Sequence[Feeds], plans: Iterable[Shapes]
) -> tuple[tuple[Feeds, ...], ...]:
    """Inputs for each combination of shapes; what the caller gave is used where it has the shape that is wanted.

    Several files are planned without being asked for: what else are they for?
    """
    unique: dict[tuple[tuple[int, ...], ...], tuple[Feeds, ...]] = {}
    for feeds in given if len(given) > 1 else ():
        unique[_shapes_of(feeds)] = (*unique.get(_shapes_of(feeds), ()), feeds)
    for shapes in plans:
        first, *more = (_generated(signature, scenario, given[0], shapes, seed) for seed in range(_RECORDED))
        known = [feeds for feeds in given if scenario.inputs and _shapes_of(feeds) == _shapes_of(first)]
        unique[_shapes_of(first)] = tuple(known) or (first, *more)
    return tuple(unique.values())


def _generated(signature: Signature, scenario: Scenario, given: Feeds, shapes: Shapes, seed: int) -> Feeds:
    wanted = replace(scenario, shapes=dict(shapes), dims={}, inputs=None, seed=scenario.seed + seed)
    generated = make_feeds(signature, wanted)
    keep = bool(scenario.inputs) or seed == 0
    arrays = {
        name: given.arrays[name] if keep and given.arrays[name].shape == array.shape else array
        for name, array in generated.arrays.items()
    }
    return replace(generated, arrays=arrays)


def _shapes_of(feeds: Feeds) -> tuple[tuple[int, ...], ...]:
    return tuple(array.shape for array in feeds.arrays.values())
