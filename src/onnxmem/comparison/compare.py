"""Which one takes less, by how much, and with the same answers? Candidates measured side by side."""

from __future__ import annotations

import tempfile
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
from onnxmem.comparison.trials import Conditions, Lives, OnLife, live, live_on, prepare
from onnxmem.comparison.twins import export_twin, twin_path
from onnxmem.comparison.what_if import try_mode, try_order
from onnxmem.environment import read_environment
from onnxmem.errors import OnnxmemError, UsageError
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
    on_life: OnLife | None = None,
) -> Comparison:
    """Compare: `compare(["a.onnx", "net:make"], weights="a.pth", shapes={"x": (1, 3, "N", "N")}, sizes=(256, 512))`.

    Each life is a fresh process, and candidates take turns, `repeat` times. Rows that this does not decide are measured
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
    given = Conditions(runs, repeat, limit, threads, timeout, memory_limit)
    say = on_life or (lambda _text: None)
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        everyone = prepare(chosen)
        made = _sizes(everyone, asked)
        twins = _twins(everyone, made, folder if export is True else Path(export), say) if export else {}
        live(everyone, made, given, folder, say)
        results = tuple(result_of(lives, made) for lives in everyone)
        parity = _parity(everyone, results, tolerance)
        rows = make_rows(results, made, parity)
        done = repeat
        # Looked at after twice as many rounds, not after each: the more often one looks, the more often chance decides.
        while done < limit and (open_ := undecided_sizes(rows, made)):
            before, done = done, min(2 * done, limit)
            live_on(everyone, open_, given, folder, say, range(before, done))
            results = tuple(result_of(lives, made) for lives in everyone)
            rows = make_rows(results, made, parity)
        what_ifs = _what_ifs(everyone, results, parity, made, given, folder, say) if advice else []
    fits = _fits(results)
    versions = (trial.onnxruntime for lives in everyone for trials in lives.trials.values() for trial in trials)
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


def _sizes(everyone: Sequence[Lives], asked: Asked) -> tuple[Size, ...]:
    """The sizes, by what an ONNX candidate says about its inputs; none where nobody is left to be fed."""
    if all(lives.failure for lives in everyone):
        return ()
    try:
        return make_sizes(asked, next((lives.signature for lives in everyone if lives.signature), None))
    except UsageError as error:
        # The one that cannot be read may be the one that would have said it.
        lost = "".join(f"; {lives.failure}" for lives in everyone if lives.failure)
        raise UsageError(f"{error}{lost}", hint=error.hint) from error


def _exportable(candidate: Candidate) -> bool:
    return candidate.source is not None and candidate.source.form in (FACTORY, PROGRAM)


def _twins(everyone: list[Lives], sizes: Sequence[Size], folder: Path, say: OnLife) -> dict[str, str]:
    """Make the ONNX twin of each PyTorch candidate, and let it take part."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{folder}': {error.strerror}") from error
    twins: dict[str, str] = {}
    for original in [lives for lives in everyone if lives.failure is None and _exportable(lives.candidate)]:
        target = twin_path(original.candidate, folder)
        say(f"exporting {original.candidate.name}")
        try:
            twin = export_twin(original.candidate, sizes, target)
            (lives,) = prepare([twin])
        except OnnxmemError as error:
            lives = Lives(Candidate(target.name, "onnx", target), failure=str(error))
        if any(other.candidate.name == lives.candidate.name for other in everyone):
            lives.candidate = replace(lives.candidate, name=f"{lives.candidate.name} (exported)")
        twins[lives.candidate.name] = original.candidate.name
        everyone.append(lives)
    return twins


def _parity(everyone: Sequence[Lives], results: Sequence[Result], tolerance: float) -> Parity:
    outputs = {}
    for lives, result in zip(everyone, results, strict=True):
        if result.failure is None:
            saved = {size: trials[0].facts.get("saved", ()) for size, trials in lives.trials.items()}
            outputs[result.name] = {size: read_outputs(each) for size, each in saved.items()}
    return judge_parity(outputs, tolerance)


def _what_ifs(
    everyone: Sequence[Lives],
    results: Sequence[Result],
    parity: Parity,
    sizes: Sequence[Size],
    given: Conditions,
    folder: Path,
    say: OnLife,
) -> list[WhatIf]:
    good = [(r, lives) for r, lives in zip(results, everyone, strict=True) if r.ok and parity.agrees(r.name)]
    if not good:
        return []
    result, lives = min(good, key=lambda pair: peak_of(pair[0]))
    if lives.candidate.kind != "onnx":
        return []
    say(f"trying changes to {result.name}")
    return [*try_mode(lives, result, sizes[-1], given, folder), *try_order(lives, sizes[-1])]


def _fits(results: Sequence[Result]) -> tuple[Fit, ...]:
    found = []
    for result in results:
        points = [(at.size.elements, at.peak.median) for at in result.at if isinstance(at.peak, Figure)]
        made = fit(result.name, points)
        if made:
            found.append(made)
    return tuple(found)
