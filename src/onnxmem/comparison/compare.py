"""Which one takes less, by how much, and with the same answers? Candidates measured side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from onnxmem.comparison.advice import HEADROOM, WhatIf, advise
from onnxmem.comparison.candidate import Candidate, parse_candidates
from onnxmem.comparison.comparison import Comparison, peak_of
from onnxmem.comparison.figure import Figure
from onnxmem.comparison.fits import Fit, fit
from onnxmem.comparison.parity import TOLERANCE, Parity, judge_parity, read_outputs
from onnxmem.comparison.result import Result, result_of
from onnxmem.comparison.rows import make_rows, undecided_sizes
from onnxmem.comparison.sizes import Asked, OpenShape, Size, make_sizes
from onnxmem.comparison.trials import CandidateTrials, Conditions, Schedule, prepare
from onnxmem.comparison.twins import export_twin, twin_path
from onnxmem.comparison.what_if import try_mode, try_order
from onnxmem.environment import read_environment
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.folders import temporary_folder
from onnxmem.progress import OnProgress, Progress
from onnxmem.torch.model import FACTORY, PROGRAM


def compare(
    candidates: Iterable[str | Path],
    *,
    shapes: Mapping[str, OpenShape | Sequence[OpenShape]] | None = None,
    dims: Mapping[str, int] | None = None,
    sizes: Sequence[int] = (),
    inputs: Path | str | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    dtypes: Mapping[str, str] | None = None,
    seed: int = 0,
    weights: Path | str | None = None,
    export: bool | Path | str = False,
    runs: int = 5,
    repeat: int = 5,
    repeat_limit: int | None = None,
    threads: int | None = None,
    timeout: float = 600.0,
    memory_limit: int | None = None,
    tolerance: float = TOLERANCE,
    headroom: float = HEADROOM,
    advice: bool = True,
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Compare: `compare(["a.onnx", "net:make"], weights="a.pth", shapes={"x": (1, 3, "N", "N")}, sizes=(256, 512))`.

    Each trial is a fresh process; candidates take turns, `repeat` times. Rows that this does not decide are measured
    again, up to `repeat_limit` times in all (by default twice as often; the same as `repeat` for never). `export` makes
    the ONNX twin of each PyTorch candidate, for this comparison or, if it is a folder, to keep. A candidate that
    fails is a result: look at `failure`.
    """
    if repeat < 1 or runs < 1:
        raise UsageError(f"repeat and runs must be at least 1; they are {repeat} and {runs}")
    limit = 2 * repeat if repeat_limit is None else repeat_limit
    if limit < repeat:
        raise UsageError(f"the limit of {limit} repetitions is below the {repeat} that are asked for")
    chosen = parse_candidates(candidates, weights=None if weights is None else Path(weights))
    asked = Asked(
        {name: _several(shape) for name, shape in (shapes or {}).items()},
        dims or {},
        tuple(sizes),
        None if inputs is None else Path(inputs),
        ranges or {},
        dtypes or {},
        seed,
    )
    if len(chosen) + sum(map(_exportable, chosen)) * bool(export) < 2:
        raise UsageError("one candidate is nothing to compare", hint="name two, or add --export to a PyTorch model")
    given = Conditions(
        runs=runs, repeat=repeat, repeat_limit=limit, threads=threads, timeout=timeout, memory_limit=memory_limit
    )
    progress: OnProgress = on_progress or (lambda _: None)
    with temporary_folder() as folder:
        everyone = prepare(chosen)
        made = _sizes(everyone, asked)
        twins = _twins(everyone, made, folder if export is True else Path(export), progress) if export else {}
        schedule = Schedule(everyone, given, folder, progress)
        schedule.run(made)
        results = tuple(result_of(trials, made) for trials in everyone)
        parity = _parity(everyone, results, tolerance)
        rows = make_rows(results, made, parity)
        done = repeat
        # Looked at after twice as many rounds, not after each: the more often one looks, the more often chance decides.
        while done < limit and (open_ := undecided_sizes(rows, made)):
            before, done = done, min(2 * done, limit)
            schedule.run_more(open_, range(before, done))
            results = tuple(result_of(trials, made) for trials in everyone)
            rows = make_rows(results, made, parity)
        what_ifs = _what_ifs(everyone, results, parity, made, given, folder, progress) if advice else []
    fits = _fits(results)
    versions = (trial.onnxruntime for each in everyone for trials in each.by_size.values() for trial in trials)
    return Comparison(
        results,
        made,
        parity,
        rows,
        fits,
        advise(results, parity, fits, what_ifs, headroom=headroom),
        given,
        read_environment(next((version for version in versions if version), None)),
        twins,
    )


def _several(shape: OpenShape | Sequence[OpenShape]) -> Sequence[OpenShape]:
    """One shape, or a list of shapes, as a list."""
    if any(isinstance(dim, tuple | list) for dim in shape):
        return [tuple(each) for each in shape]  # type: ignore[arg-type]
    return [tuple(shape)]  # type: ignore[arg-type]


def _sizes(everyone: Sequence[CandidateTrials], asked: Asked) -> tuple[Size, ...]:
    """The sizes, by what an ONNX candidate says about its inputs; none where nobody is left to be fed."""
    if all(trials.failure for trials in everyone):
        return ()
    try:
        return make_sizes(asked, next((trials.signature for trials in everyone if trials.signature), None))
    except UsageError as error:
        # The one that cannot be read may be the one that would have said it.
        lost = "".join(f"; {trials.failure}" for trials in everyone if trials.failure)
        raise UsageError(f"{error}{lost}", hint=error.hint) from error


def _exportable(candidate: Candidate) -> bool:
    return candidate.source is not None and candidate.source.form in (FACTORY, PROGRAM)


def _twins(
    everyone: list[CandidateTrials], sizes: Sequence[Size], folder: Path, progress: OnProgress
) -> dict[str, str]:
    """Make the ONNX twin of each PyTorch candidate, and let it take part."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{folder}': {error.strerror}") from error
    twins: dict[str, str] = {}
    for original in [trials for trials in everyone if trials.failure is None and _exportable(trials.candidate)]:
        target = twin_path(original.candidate, folder)
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


def _parity(everyone: Sequence[CandidateTrials], results: Sequence[Result], tolerance: float) -> Parity:
    outputs = {}
    for trials, result in zip(everyone, results, strict=True):
        if result.failure is None:
            saved = {size: own[0].saved for size, own in trials.by_size.items()}
            outputs[result.name] = {size: read_outputs(each) for size, each in saved.items()}
    return judge_parity(outputs, tolerance)


def _what_ifs(
    everyone: Sequence[CandidateTrials],
    results: Sequence[Result],
    parity: Parity,
    sizes: Sequence[Size],
    given: Conditions,
    folder: Path,
    progress: OnProgress,
) -> list[WhatIf]:
    good = [(r, trials) for r, trials in zip(results, everyone, strict=True) if r.ok and parity.agrees(r.name)]
    if not good:
        return []
    result, trials = min(good, key=lambda pair: peak_of(pair[0]))
    if trials.candidate.kind != "onnx":
        return []
    progress(Progress(f"trying changes to {result.name}"))
    return [*try_mode(trials, result, sizes[-1], given, folder), *try_order(trials, sizes[-1])]


def _fits(results: Sequence[Result]) -> tuple[Fit, ...]:
    found = []
    for result in results:
        points = [(at.size.elements, at.peak.median) for at in result.at if isinstance(at.peak, Figure)]
        made = fit(result.name, points)
        if made:
            found.append(made)
    return tuple(found)
