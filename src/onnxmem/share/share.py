"""Can N workers share the weights, and what does it cost? Files are made for each mode, and then workers run."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onnxmem.errors import ModelError, UsageError
from onnxmem.measure.cache import drop
from onnxmem.measure.environment import read_environment
from onnxmem.measure.feeds import make_feeds
from onnxmem.measure.scenario import Scenario
from onnxmem.measure.signature import Signature, read_signature
from onnxmem.runtime.build import ORT_LIMIT, build
from onnxmem.runtime.contents import describe_weights
from onnxmem.runtime.modes import Mode, Setting, check_version, find_mode
from onnxmem.runtime.package import is_package, open_package
from onnxmem.share.gather import Gathering, OnHold
from onnxmem.share.sharing import Cold, Group, Sharing
from onnxmem.unknown import Unknown

ONNX_MODES = ("stock", "external", "mapped", "prepacked")
ORT_MODES = ("ort", "ort-mapped", "ort-mapped-packed")
OnStage = Callable[[str], None]

_OPTIMIZED: dict[str, Setting] = {"graph_optimization_level": "ORT_DISABLE_ALL"}


@dataclass(frozen=True)
class _Files:
    """A model in the form that a mode reads."""

    model: Path
    files: tuple[Path, ...]
    options: dict[str, Setting]


def share(
    model: Path | str,
    workers: Sequence[int] = (1, 2, 4),
    modes: Sequence[str] | None = None,
    *,
    iterations: int = 1,
    cold: bool = True,
    on_hold: OnHold | None = None,
    on_stage: OnStage | None = None,
    **settings: Any,
) -> Sharing:
    """Measure N processes of a model together: `share("model.onnx", workers=(1, 4), modes=("stock", "prepacked"))`.

    `settings` are the fields of a Scenario: shapes, dims, inputs, runs, threads … All modes take turns in each of
    `iterations`. With `cold`, one more process of each mode loads with the page cache emptied of the model.
    `on_hold(pids)` is called while a group is alive.
    """
    source = Path(model)
    scenario = Scenario(source, **settings)
    counts = _counts(workers)
    if iterations < 1:
        raise UsageError(f"iterations must be at least 1; it is {iterations}")
    chosen = _modes(source, modes)
    say = on_stage or (lambda _: None)
    signature = read_signature(source)
    feeds = make_feeds(signature, scenario)
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        forms = _prepare(source, signature, chosen, folder, say)
        saved = feeds.save(folder)
        groups = [Group(mode.name, count, (), _no_cold(cold)) for count in counts for mode in chosen]
        if cold:
            colds = {mode.name: _cold(mode, forms[mode.form], saved, scenario, say) for mode in chosen}
            groups = [replace(group, cold=colds[group.mode]) for group in groups]
        for number in range(iterations):
            for position, group in enumerate(groups):
                if group.failures:
                    continue
                again = f", {number + 1} of {iterations}" if iterations > 1 else ""
                say(f"{group.mode}: {group.count} worker{'s' if group.count > 1 else ''}{again}")
                mode = find_mode(group.mode)
                found, failures = _gather(mode, forms[mode.form], saved, scenario, group.count, on_hold)
                rounds = group.rounds if failures else (*group.rounds, found)
                groups[position] = replace(group, rounds=rounds, failures=failures)
        weights = _weights_bytes(forms, signature)
    return Sharing(
        source.name,
        signature.file_size,
        weights,
        scenario.threads,
        scenario.runs,
        feeds,
        tuple(groups),
        read_environment(),
    )


def _counts(workers: Sequence[int]) -> tuple[int, ...]:
    counts = tuple(dict.fromkeys(workers))
    if not counts or any(not 1 <= count <= 256 for count in counts):
        raise UsageError("numbers of workers must be between 1 and 256", hint="for example --workers 1,2,4")
    return counts


def _modes(source: Path, names: Sequence[str] | None) -> tuple[Mode, ...]:
    if not names:
        if is_package(source):
            names = (open_package(source).manifest.mode,)
        else:
            names = ORT_MODES if source.suffix == ".ort" else ONNX_MODES
    import onnxruntime  # noqa: PLC0415

    found = tuple(find_mode(name) for name in dict.fromkeys(names))
    for mode in found:
        check_version(mode, onnxruntime.__version__)
    return found


def _prepare(
    source: Path, signature: Signature, modes: Sequence[Mode], folder: Path, say: OnStage
) -> dict[str, _Files]:
    """The model in every form that a mode needs."""
    forms = {}
    package = open_package(source) if is_package(source) else None
    original = Path(package.manifest.source_path) if package else source
    for form in dict.fromkeys(mode.form for mode in modes):
        if package and form in (package.mode.form, "external"):
            forms[form] = _Files(source, package.files, {})
        elif form == "any" or (form == "ort" and source.suffix == ".ort"):
            files = read_signature(original).files if package else signature.files
            forms[form] = _Files(original, files, {})
        else:
            say(f"making the {form} form")
            if form == "ort" and signature.file_size > ORT_LIMIT:
                raise ModelError("the model is too large for the ORT format, which ends at 2 GiB")
            place = folder / form
            place.mkdir()
            target = build(original, place, form)
            options = {} if form == "ort" else _OPTIMIZED
            forms[form] = _Files(target, tuple(place.iterdir()), options)
    return forms


def _gather(
    mode: Mode,
    form: _Files,
    feeds: list[tuple[str, str]],
    scenario: Scenario,
    count: int,
    on_hold: OnHold | None = None,
) -> Any:
    task = {
        "model": str(form.model),
        "feeds": feeds,
        "mode": mode.name,
        "runs": scenario.runs,
        "threads": scenario.threads,
        "options": {**form.options, **scenario.options},
        "config": dict(scenario.config),
        "profile": False,
    }
    # Workers wait for each other, and for whoever looks at them, as long as it takes.
    timeout = scenario.timeout * count if on_hold is None else 1e6
    return Gathering(task, count, form.files, timeout).run(on_hold)


def _cold(mode: Mode, form: _Files, feeds: list[tuple[str, str]], scenario: Scenario, say: OnStage) -> Cold:
    say(f"{mode.name}: loading with a cold cache")
    kept = drop(form.files)
    if kept:
        return Cold(kept, kept)
    found, failures = _gather(mode, form, feeds, replace(scenario, runs=1), 1)
    if failures:
        return Cold(Unknown(failures[0]), Unknown(failures[0]))
    return Cold(found[0].load_seconds, found[0].first_run)


def _no_cold(asked: bool) -> Cold:
    why = Unknown("it was not measured" if asked else "it was not asked for")
    return Cold(why, why)


def _weights_bytes(forms: dict[str, _Files], signature: Signature) -> int:
    """One copy of the weights, as they are used."""
    for form in ("external", "prepacked"):
        if form in forms:
            found = forms[form].model
            model = open_package(found).model if is_package(found) else found
            return describe_weights(model)[0].used
    return signature.file_size
