"""Which one takes less, by how much, and with the same answers? Candidates measured side by side, and what follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

from onnxmem.comparison.advice import HEADROOM, Advice, advise, smallest, try_mode, try_order
from onnxmem.comparison.candidate import Candidate, parse_candidates
from onnxmem.comparison.fits import Fit, fit
from onnxmem.comparison.parity import TOLERANCE, Parity, judge_parity, read_outputs
from onnxmem.comparison.result import CandidateResult, Figure, result_of
from onnxmem.comparison.rows import Row, make_rows, undecided_sizes
from onnxmem.comparison.sizes import InputSize, OpenShape, Request, Size, make_sizes
from onnxmem.comparison.trials import CandidateTrials, Conditions, Schedule, prepare
from onnxmem.comparison.twins import export_twin, twin_path
from onnxmem.deadline import Deadline
from onnxmem.environment import read_environment
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.device import HOST, check_device
from onnxmem.progress import OnProgress, Progress
from onnxmem.result import Result
from onnxmem.torch.model import FACTORY, PROGRAM

BEYOND = (2.0, 4.0)
"""Where fits are asked beyond what was measured: inputs of so many times the elements."""


@dataclass(frozen=True, kw_only=True)
class Comparison(Result):
    """What candidates took, side by side."""

    SCHEMA: ClassVar[str] = "onnxmem.compare/1"

    candidates: tuple[CandidateResult, ...]
    sizes: tuple[InputSize, ...]
    parity: Parity
    advice: tuple[Advice, ...]
    conditions: Conditions
    exported: Mapping[str, str]
    """ONNX twins made on the way: the PyTorch candidate by the twin's name."""

    @property
    def ok(self) -> bool:
        """Whether all candidates ran and gave the same answers."""
        return self.parity.same and all(each.ok for each in self.candidates)

    @property
    def finished(self) -> tuple[CandidateResult, ...]:
        """Those that ran at every size."""
        return tuple(each for each in self.candidates if each.ok)

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """One row for each figure: who takes least, if that is decided."""
        return make_rows(self.candidates, [size.label for size in self.sizes], self.parity)

    @cached_property
    def fits(self) -> tuple[Fit, ...]:
        """How each candidate's peak grows with the input; none for a single size, nor on a device."""
        return _fits(self.candidates, self.sizes) if self.conditions.device == HOST else ()

    def disagreements(self, again: Comparison) -> list[str]:
        """Did a second comparison say the same? The rows of which it did not, with both verdicts."""
        both = [
            (first.label, first.winner or first.verdict, second.winner or second.verdict)
            for first, second in zip(self.rows, again.rows, strict=True)
        ]
        return [f"{label}: {before}, then {after}" for label, before, after in both if before != after]

    def derived(self) -> Mapping[str, Any]:
        """The rows and the fits."""
        return {"rows": self.rows, "fits": self.fits}


def compare(
    candidates: Iterable[str | PathLike[str]],
    *,
    shapes: Mapping[str, OpenShape | Sequence[OpenShape]] | None = None,
    dims: Mapping[str, int] | None = None,
    sizes: Sequence[int] = (),
    inputs: str | PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    seed: int = 0,
    weights: str | PathLike[str] | None = None,
    export: bool | str | PathLike[str] = False,
    runs: int = 5,
    repeat: int = 5,
    repeat_limit: int | None = None,
    threads: int | None = None,
    device: str = HOST,
    time_limit: float = 3600.0,
    memory_limit: int | None = None,
    tolerance: float = TOLERANCE,
    headroom: float = HEADROOM,
    advice: bool = True,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Compare: `compare(["a.onnx", "net:make"], weights="a.pth", shapes={"x": (1, 3, "N", "N")}, sizes=(256, 512))`.

    Each trial is a fresh process; candidates take turns, `repeat` times. Rows that this does not decide are measured
    again, up to `repeat_limit` times in all (by default twice as often; the same as `repeat` for never). When
    `time_limit` seconds are over, there are no more repetitions. `export` makes the ONNX twin of each PyTorch
    candidate, for this comparison or, if it is a folder, to keep. On another `device` (`cuda`, `cuda:1`) there are
    figures of its memory, too, and no advice. Files that cannot be read, and models that take other inputs, are
    errors; a candidate that fails when it runs is a result: look at `failure`.
    """
    if repeat < 1 or runs < 1:
        raise UsageError(f"repeat and runs must be at least 1; they are {repeat} and {runs}")
    limit = 2 * repeat if repeat_limit is None else repeat_limit
    if limit < repeat:
        raise UsageError(f"the limit of {limit} repetitions is below the {repeat} that are asked for")
    chosen = parse_candidates(candidates, weights=None if weights is None else Path(weights))
    request = Request(
        shapes={name: _several(shape) for name, shape in (shapes or {}).items()},
        dims=dims or {},
        sizes=tuple(sizes),
        inputs=None if inputs is None else Path(inputs),
        ranges=ranges or {},
        dtypes=dtypes or {},
        seed=seed,
    )
    if len(chosen) + sum(map(_exportable, chosen)) * bool(export) < 2:
        raise UsageError("one candidate is nothing to compare", hint="name two, or add --export to a PyTorch model")
    conditions = Conditions(
        runs=runs,
        repeat=repeat,
        repeat_limit=limit,
        threads=threads,
        timeout=time_limit,
        memory_limit=memory_limit,
        device=device,
    )
    check_device(device, onnxruntime=bool(export) or any(each.kind == "onnx" for each in chosen))
    deadline, progress = Deadline(time_limit), on_progress or (lambda _: None)
    with temporary_folder() as folder:
        everyone = prepare(chosen)
        _refuse_unreadable(everyone)
        made = make_sizes(request, next((trials.signature for trials in everyone if trials.signature), None))
        _refuse_other_inputs(everyone, made)
        twins = _twins(everyone, made, folder if export is True else Path(export), progress) if export else {}
        schedule = Schedule(everyone, conditions, folder, progress, deadline)
        schedule.run(made)
        results = _results(everyone, made)
        comparison = Comparison(
            candidates=results,
            sizes=tuple(size.described() for size in made),
            parity=_parity(everyone, results, tolerance),
            advice=(),
            conditions=conditions,
            exported=twins,
            environment=read_environment(next((each.onnxruntime for each in everyone if each.onnxruntime), None)),
        )
        done = repeat
        # Looked at after twice as many rounds, not after each: the more often one looks, the more often chance decides.
        while done < limit and (undecided := undecided_sizes(comparison.rows, made)):
            before, done = done, min(2 * done, limit)
            schedule.run(undecided, range(before, done))
            comparison = replace(comparison, candidates=_results(everyone, made))
        return replace(comparison, advice=_advice(comparison, schedule, made, headroom, tried=advice))


def _several(shape: OpenShape | Sequence[OpenShape]) -> Sequence[OpenShape]:
    """One shape, or a list of shapes, as a list."""
    if any(isinstance(dim, tuple | list) for dim in shape):
        return [tuple(each) for each in shape]  # type: ignore[arg-type]
    return [tuple(shape)]  # type: ignore[arg-type]


def _refuse_unreadable(everyone: Sequence[CandidateTrials]) -> None:
    """Measuring the others takes minutes, and would not answer what was asked."""
    if reasons := [trials.failure for trials in everyone if trials.failure]:
        raise ModelError("; ".join(reasons), hint="leave it out, or name another file")


def _refuse_other_inputs(everyone: Sequence[CandidateTrials], sizes: Sequence[Size]) -> None:
    """All are fed the same: whoever cannot take that is no candidate for the same job."""
    for trials in everyone:
        for size in sizes:
            try:
                trials.arrays(size)
            except UsageError as error:
                what = f"'{trials.candidate.name}' cannot be compared with the others at {size.label}: {error}"
                raise UsageError(what, hint="all candidates have to take the same inputs") from error


def _exportable(candidate: Candidate) -> bool:
    return candidate.source is not None and candidate.source.form in (FACTORY, PROGRAM)


def _twins(
    everyone: list[CandidateTrials], sizes: Sequence[Size], folder: Path, progress: OnProgress
) -> dict[str, str]:
    """Make the ONNX twin of each PyTorch candidate, and let it take part."""
    exported = [trials for trials in everyone if trials.failure is None and _exportable(trials.candidate)]
    targets = {trials.candidate.name: twin_path(trials.candidate, folder) for trials in exported}
    read = {file.resolve() for trials in everyone for file in trials.files}
    for name, target in targets.items():
        # Where PyTorch puts the weights of a large model is the twin's file, too.
        for file in (target, target.with_name(f"{target.name}.data")):
            if file.resolve() in read:
                what = f"the ONNX twin of '{name}' would overwrite '{file}', which is compared, too"
                raise UsageError(what, hint="export to another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{folder}': {error.strerror}") from error
    twins: dict[str, str] = {}
    for original in exported:
        target = targets[original.candidate.name]
        progress(Progress(f"exporting {original.candidate.name}"))
        try:
            twin = export_twin(original.candidate, sizes, target)
            (trials,) = prepare([twin])
        except OnnxmemError as error:
            trials = CandidateTrials(Candidate(target.name, "onnx", target), failure=str(error))
        if any(other.candidate.name == trials.candidate.name for other in everyone):
            trials.candidate = replace(trials.candidate, name=f"{trials.candidate.name} (exported)")
        twins[trials.candidate.name] = original.candidate.name
        everyone.append(trials)
    return twins


def _results(everyone: Sequence[CandidateTrials], sizes: Sequence[Size]) -> tuple[CandidateResult, ...]:
    return tuple(result_of(trials, sizes) for trials in everyone)


def _parity(everyone: Sequence[CandidateTrials], results: Sequence[CandidateResult], tolerance: float) -> Parity:
    outputs = {
        result.name: {size: read_outputs(own[0].saved) for size, own in trials.by_size.items()}
        for trials, result in zip(everyone, results, strict=True)
        if result.failure is None
    }
    return judge_parity(outputs, tolerance)


def _advice(
    comparison: Comparison, schedule: Schedule, sizes: Sequence[Size], headroom: float, *, tried: bool
) -> tuple[Advice, ...]:
    """What follows; with `tried`, changes to the smallest candidate are tried, too. Nothing of it is about a device."""
    if comparison.conditions.device != HOST:
        return ()
    best = smallest(comparison.candidates, comparison.parity)
    trials = next((each for each in schedule.everyone if best and each.candidate.name == best.name), None)
    changes = []
    if tried and best and trials and best.kind == "onnx":
        schedule.on_progress(Progress(f"trying changes to {best.name}"))
        changes = [*try_mode(trials, best, sizes[-1], schedule), *try_order(trials, sizes[-1])]
    return advise(
        comparison.candidates, comparison.parity, comparison.rows, comparison.fits, changes, headroom=headroom
    )


def _fits(candidates: tuple[CandidateResult, ...], sizes: tuple[InputSize, ...]) -> tuple[Fit, ...]:
    """The fit of each candidate that ran at several sizes, with predictions for larger ones."""
    beyond = [
        (f"{factor:g} × n({size.label})", round(size.elements * factor)) for size in sizes[-1:] for factor in BEYOND
    ]
    fitted = (
        fit(each.name, [(at.elements, at.peak.median) for at in each.at if isinstance(at.peak, Figure)], beyond)
        for each in candidates
    )
    return tuple(each for each in fitted if each)
