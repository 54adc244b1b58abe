"""Which of these files should I load here? The one that measured best, not the one that habit names first."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, TypedDict, Unpack

from onnxmem import files
from onnxmem.comparison.candidate import Candidate, is_absent, parse_candidates
from onnxmem.comparison.compare import Comparison, compare
from onnxmem.comparison.result import CandidateResult, Figure
from onnxmem.comparison.sizes import OpenShape
from onnxmem.comparison.trials import prepare
from onnxmem.environment import package_version, read_environment
from onnxmem.errors import BudgetExceeded, ModelError, UsageError
from onnxmem.folders import cache_folder, private_cache
from onnxmem.units import format_bytes

BY = ("memory", "latency", "cold start")
Feeds = Mapping[str, Any]


class Settings(TypedDict, total=False):
    """Settings of `compare` that decide what is measured."""

    shapes: Mapping[str, OpenShape | Sequence[OpenShape]]
    dims: Mapping[str, int]
    sizes: Sequence[int]
    inputs: str | PathLike[str]
    ranges: Mapping[str, tuple[float, float]]
    dtypes: Mapping[str, str]
    seed: int
    runs: int
    repeat_limit: int
    threads: int
    time_limit: float
    memory_limit: int
    tolerance: float


@dataclass(frozen=True)
class Loaded:
    """A model that is loaded in this process."""

    name: str
    model: Any
    """onnxruntime's InferenceSession or PyTorch's Module."""
    why: str
    measured: CandidateResult | None
    """What was measured of it; None where there was no choice."""
    _run: Callable[[Feeds], list[Any]]

    def run(self, feeds: Feeds) -> list[Any]:
        """Arrays by input name in, arrays in order of the outputs out, whoever runs it."""
        return self._run(feeds)


def load_best(
    paths: Iterable[str | PathLike[str]],
    *,
    by: str = "memory",
    budget: int | None = None,
    weights: str | PathLike[str] | None = None,
    cache: str | PathLike[str] | None = None,
    repeat: int = 1,
    **settings: Unpack[Settings],
) -> Loaded:
    """Load the candidate that fits best: `load_best(["net.onnx", "net:make"], weights="net.pth", shapes=…)`.

    Candidates that are not there or cannot be read are left out, those that fail or give other answers than the first
    never win. `by` is "memory" (peak RSS at the largest size), "latency" or "cold start"; with a `budget` in bytes only
    candidates whose peak is within it are considered. `settings` are those of `compare`. Figures are kept in `cache`
    (by default the user's cache folder) and measured again when a file, a setting or the environment changes; the code
    behind an importable `module:factory` is not watched.
    """
    if by not in BY:
        raise UsageError(f"there is no choice by '{by}'", hint=f"known: {', '.join(BY)}")
    given = list(paths)
    there = [path for path in given if not is_absent(str(path))]
    if not there:
        raise UsageError(f"none of these is there: {', '.join(map(str, given)) or 'nothing was named'}")
    weights = None if weights is None else Path(weights)
    there = _readable(there, weights)
    candidates = parse_candidates(there, weights=weights)
    if len(candidates) == 1 and budget is None:
        return _load(candidates[0], None, "it is the only one there")
    comparison = _measured(there, candidates, None if cache is None else Path(cache), weights, repeat, settings)
    results = {each.name: each for each in comparison.candidates}
    good = [each for each in candidates if results[each.name].ok and comparison.parity.agrees(each.name)]
    if not good:
        reasons = "; ".join(f"{each.name}: {each.why_not or 'other answers'}" for each in comparison.candidates)
        raise ModelError(f"no candidate can be used: {reasons}")
    fitting = [each for each in good if budget is None or results[each.name].peak <= budget]
    if budget is not None and not fitting:
        least = min(results[each.name].peak for each in good)
        raise BudgetExceeded(f"the smallest takes {format_bytes(least)}, and {format_bytes(budget)} are allowed")
    best = min(fitting, key=lambda each: _value(results[each.name], by))
    value = _value(results[best.name], by)
    words = f"{format_bytes(value)} peak RSS" if by == "memory" else f"{by} {value:.3f} s"
    return _load(best, results[best.name], f"{words}, the least of {len(fitting)} that fit")


def _readable(paths: list[str | PathLike[str]], weights: Path | None) -> list[str | PathLike[str]]:
    """Those whose files can be read; a comparison would not begin with the others."""
    if len(paths) < 2:
        return paths
    looked = prepare(parse_candidates(paths, weights=weights))
    found = [path for path, trials in zip(paths, looked, strict=True) if trials.failure is None]
    if not found:
        raise ModelError(f"no candidate can be used: {'; '.join(trials.failure or '' for trials in looked)}")
    return found


def _value(result: CandidateResult, by: str) -> float:
    figure = {"memory": result.at[-1].peak, "latency": result.at[-1].latency, "cold start": result.cold_start}[by]
    return figure.median if isinstance(figure, Figure) else float("inf")


def _measured(
    paths: list[str | PathLike[str]],
    candidates: tuple[Candidate, ...],
    cache: Path | None,
    weights: Path | None,
    repeat: int,
    settings: Settings,
) -> Comparison:
    """A comparison, from the cache if nothing has changed since."""
    folder = cache or cache_folder() / "best"
    key = {
        "schema": Comparison.SCHEMA,
        "candidates": [[each.name, each.mode, [_stamp(file) for file in _files(each)]] for each in candidates],
        "settings": repr((weights, repeat, sorted(settings.items(), key=lambda item: item[0]))),
        "environment": {**read_environment().document(), "torch": package_version("torch")},
    }
    place = folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, UsageError):
        if cache is None:
            private_cache()  # or somebody else may have put it there
        return Comparison.from_document(json.loads(place.read_text()))
    if len(candidates) == 1:
        paths = [*paths, *paths]  # a budget needs figures even where there is no choice
    wanted: Settings = {"repeat_limit": repeat, **settings}
    comparison = compare(paths, weights=weights, repeat=repeat, advice=False, **wanted)
    with suppress(OSError, UsageError):  # a cache that cannot be written only costs time
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(place, json.dumps(comparison.document()))
    return comparison


def _files(candidate: Candidate) -> list[Path]:
    """All files that decide the figures: external weights too, and a factory's code where its file is named."""
    (trials,) = prepare([candidate])
    code = candidate.source.where.rpartition(":")[0] if candidate.source else ""
    paths = [*trials.files, *([Path(code)] if code.endswith(".py") else [])]
    return [path for path in paths if path.exists()]


def _stamp(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path.absolute()), status.st_size, status.st_mtime_ns]


def _load(candidate: Candidate, measured: CandidateResult | None, why: str) -> Loaded:
    if candidate.source is not None:
        from onnxmem.torch import model as torch_model  # noqa: PLC0415

        torch, model = torch_model.import_torch(), torch_model.load_module(candidate.source)

        def run_module(feeds: Feeds) -> list[Any]:
            tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
            places, names = torch_model.call_with(model, tensors)
            with torch.inference_mode():
                returned = model(*places, **names)
            return [torch_model.as_array(tensor) for _, tensor in torch_model.flat_outputs(returned)]

        return Loaded(candidate.name, model, why, measured, run_module)
    # onnxmem's own session, which knows modes and packages: the one that was measured.
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    session = InferenceSession(str(candidate.path), providers=["CPUExecutionProvider"], mode=candidate.mode)
    names = [value.name for value in session.get_inputs()]

    def run_session(feeds: Feeds) -> list[Any]:
        fed = feeds if set(feeds) == set(names) else dict(zip(names, feeds.values(), strict=True))
        return list(session.run(None, dict(fed)))

    return Loaded(candidate.name, session, why, measured, run_session)
