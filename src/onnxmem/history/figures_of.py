"""The figures of a measurement (of several processes the highest, since none may take more) or a prediction."""

from __future__ import annotations

from collections.abc import Callable

from onnxmem.history.figures import Figures
from onnxmem.measurement.measurement import Measurement
from onnxmem.measurement.protocol import LOAD, RUNS, STEADY_RUNS
from onnxmem.measurement.trial import Phase, Trial
from onnxmem.prediction.prediction import Forecast
from onnxmem.unknown import Bytes, Unknown


def measured(measurement: Measurement) -> Figures:
    """What a model took, in each respect that a budget can be about."""

    def most(figure: Callable[[Trial], Bytes]) -> Bytes:
        found = [figure(trial) for trial in measurement.trials]
        unknown = next((each for each in found if isinstance(each, Unknown)), None)
        return unknown or max(each for each in found if isinstance(each, int))

    latency = measurement.latency
    return Figures(
        peak=most(_peak),
        load_peak=most(lambda trial: _in(trial, LOAD, lambda phase: phase.peak.rss)),
        loaded=most(lambda trial: _in(trial, LOAD, lambda phase: phase.reading.rss)),
        run_growth=most(lambda trial: trial.growth(*RUNS)),
        steady=most(lambda trial: _in(trial, STEADY_RUNS, lambda phase: phase.reading.rss)),
        latency=Unknown("no steady run was completed") if latency is None else latency,
    )


def predicted(forecast: Forecast) -> Figures:
    """What a model will take."""
    return Figures(
        peak=forecast.peak,
        load_peak=forecast.load_peak,
        loaded=forecast.loaded,
        run_growth=forecast.run_growth,
        steady=forecast.steady,
        latency=Unknown("nothing was run"),
    )


def unknown_figures(why: str) -> Figures:
    """None of them."""
    unknown = Unknown(why)
    return Figures(peak=unknown, load_peak=unknown, loaded=unknown, run_growth=unknown, steady=unknown, latency=unknown)


def _peak(trial: Trial) -> Bytes:
    # What a process took before it died would look like little.
    return trial.highest if trial.verdict.ok else Unknown("the process did not run to its end")


def _in(trial: Trial, name: str, figure: Callable[[Phase], Bytes]) -> Bytes:
    phase = trial.phase(name)
    if phase is None or not phase.completed:
        return Unknown(f"the phase '{name}' was not completed")
    return figure(phase)
