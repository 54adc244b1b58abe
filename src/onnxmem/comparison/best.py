"""Which of these files should I load here? The one that measured best, not the one that habit names first."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onnxmem import files
from onnxmem.comparison.candidate import Candidate, parse_candidates
from onnxmem.comparison.compare import compare
from onnxmem.comparison.comparison import SCHEMA
from onnxmem.comparison.trials import prepare
from onnxmem.environment import package_version, read_environment
from onnxmem.errors import BudgetExceeded, ModelError, UsageError
from onnxmem.units import format_bytes

BY = ("memory", "latency", "cold start")
Feeds = Mapping[str, Any]


@dataclass(frozen=True)
class Loaded:
    """A model that is loaded in this process."""

    name: str
    model: Any
    """onnxruntime's InferenceSession or PyTorch's Module."""
    why: str
    figures: Mapping[str, Any]
    """What was measured of it: `candidates[]` of `onnxmem.compare/1`."""
    _run: Callable[[Feeds], list[Any]]

    def run(self, feeds: Feeds) -> list[Any]:
        """Arrays by input name in, arrays in order of the outputs out, whoever runs it."""
        return self._run(feeds)


def load_best(
    paths: Iterable[str | Path],
    *,
    by: str = "memory",
    budget: int | None = None,
    weights: Path | str | None = None,
    cache: Path | str | None = None,
    repeat: int = 1,
    **settings: Any,
) -> Loaded:
    """Load the candidate that fits best: `load_best(["net.onnx", "net:make"], weights="net.pth", shapes=…)`.

    Candidates that are not there are left out, those that fail or give other answers than the first never win. `by` is
    "memory" (peak RSS at the largest size), "latency" or "cold start"; with a `budget` in bytes only candidates whose
    peak is within it are considered. `settings` are those of `compare`. Figures are kept in `cache` (by default the
    user's cache folder) and measured again when a file, a setting or the environment changes; the code behind an
    importable `module:factory` is not watched.
    """
    if by not in BY:
        raise UsageError(f"there is no choice by '{by}'", hint=f"known: {', '.join(BY)}")
    given = list(paths)
    there = [path for path in given if _there(path)]
    if not there:
        raise UsageError(f"none of these is there: {', '.join(map(str, given)) or 'nothing was named'}")
    weights = None if weights is None else Path(weights)
    candidates = parse_candidates(there, weights=weights)
    if len(candidates) == 1 and budget is None:
        (only,) = candidates
        return _load(only, {}, "it is the only one there")
    document = _measured(there, candidates, cache, {"repeat": repeat, "weights": weights, **settings})
    found = {each["name"]: each for each in document["candidates"]}
    wrong = {each["candidate"] for each in document["parity"]["differences"] if not each["same"]}
    good = [each for each in candidates if found[each.name]["ok"] and each.name not in wrong]
    if not good:
        reasons = "; ".join(f"{name}: {each['failure'] or 'it failed at one size'}" for name, each in found.items())
        raise ModelError(f"no candidate can be used: {reasons}")
    fitting = [each for each in good if budget is None or _figure(found[each.name], "memory") <= budget]
    if not fitting:
        least = min(_figure(found[each.name], "memory") for each in good)
        raise BudgetExceeded(f"the smallest takes {format_bytes(least)}, and {format_bytes(budget or 0)} are allowed")
    best = min(fitting, key=lambda each: _figure(found[each.name], by))
    value = _figure(found[best.name], by)
    words = f"{format_bytes(value)} peak RSS" if by == "memory" else f"{by} {value:.3f} s"
    return _load(best, found[best.name], f"{words}, the least of {len(fitting)} that fit")


def _there(path: str | Path) -> bool:
    text = str(path)
    return Path(text).exists() or Path(text.rpartition("+")[0] or text).exists() or ":" in Path(text).name


def _figure(document: Mapping[str, Any], by: str) -> float:
    last = document["inputs"][-1]
    value = {
        "memory": last["peak_rss_bytes"],
        "latency": last["latency_seconds"],
        "cold start": document["cold_start_seconds"],
    }[by]
    return float("inf") if value is None else float(value)


def _measured(
    paths: list[str | Path], candidates: tuple[Candidate, ...], cache: Path | str | None, settings: dict[str, Any]
) -> dict[str, Any]:
    """The document of a comparison, from the cache if nothing has changed since."""
    folder = Path(cache) if cache is not None else _cache_folder()
    key = {
        "candidates": [[each.name, each.mode, [_stamp(file) for file in _files(each)]] for each in candidates],
        "settings": repr(sorted(settings.items(), key=lambda item: item[0])),
        "environment": {**read_environment().document(), "torch": package_version("torch")},
    }
    place = folder / f"{hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError):
        document: dict[str, Any] = json.loads(place.read_text())
        if document.get("schema") == SCHEMA:
            return document
    if len(candidates) == 1:
        paths = [*paths, *paths]  # a budget needs figures even where there is no choice
    document = compare(paths, **{"advice": False, "repeat_limit": settings["repeat"], **settings}).document()
    with suppress(OSError, UsageError):  # a cache that cannot be written only costs time
        folder.mkdir(parents=True, exist_ok=True)
        files.write_text(place, json.dumps(document))
    return document


def _files(candidate: Candidate) -> list[Path]:
    """All files that decide the figures: external weights too, and a factory's code where its file is named."""
    (trials,) = prepare([candidate])
    code = candidate.source.where.rpartition(":")[0] if candidate.source else ""
    found = [*trials.files, *([Path(code)] if code.endswith(".py") else [])]
    return [path for path in found if path.exists()]


def _stamp(path: Path) -> list[Any]:
    status = path.stat()
    return [str(path.absolute()), status.st_size, status.st_mtime_ns]


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "onnxmem" / "best"


def _load(candidate: Candidate, figures: Mapping[str, Any], why: str) -> Loaded:
    if candidate.source is not None:
        from onnxmem.torch import model as torch_model  # noqa: PLC0415

        torch, model = torch_model.import_torch(), torch_model.load_module(candidate.source)

        def run_module(feeds: Feeds) -> list[Any]:
            tensors = {name: torch.from_numpy(array) for name, array in feeds.items()}
            places, names = torch_model.call_with(model, tensors)
            with torch.inference_mode():
                returned = model(*places, **names)
            return [torch_model.as_array(tensor) for _, tensor in torch_model.flat_outputs(returned)]

        return Loaded(candidate.name, model, why, figures, run_module)
    session = _session(candidate)
    names = [value.name for value in session.get_inputs()]

    def run_session(feeds: Feeds) -> list[Any]:
        fed = feeds if set(feeds) == set(names) else dict(zip(names, feeds.values(), strict=True))
        return list(session.run(None, dict(fed)))

    return Loaded(candidate.name, session, why, figures, run_session)


def _session(candidate: Candidate) -> Any:
    """The session that was measured: onnxmem's own, which knows modes and packages."""
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    return InferenceSession(str(candidate.path), providers=["CPUExecutionProvider"], mode=candidate.mode)
