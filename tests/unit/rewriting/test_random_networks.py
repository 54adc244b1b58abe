"""Random networks with random regions in stripes. `benchmarks.rewritten --random` runs more of them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from benchmarks.random_images import random_network
from benchmarks.rewritten import DoesNotRun, try_regions


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_stripes_are_the_same_bits(data: st.DataObject) -> None:
    def choose(count: int) -> int:
        return data.draw(st.integers(0, count - 1))

    network = random_network(choose, most=8)
    with TemporaryDirectory() as folder:
        try:
            trials = list(try_regions(network, choose, Path(folder), times=2))
        except DoesNotRun:
            assume(False)
        for trial in trials:
            assert trial.identical, [region.span for region in trial.regions]
