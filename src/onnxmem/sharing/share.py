"""Can N workers share the weights, and what does it cost? Files are made for each mode, and then workers run."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError, UsageError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.cache import drop
from onnxmem.measurement.device import DEVICE_MODES, HOST, check_device
from onnxmem.measurement.feeds import Fed, make_feeds
from onnxmem.measurement.measure import worker_task
from onnxmem.measurement.protocol import SavedFeeds, Task
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Signature, read_signature
from onnxmem.packing.blobs import describe_weights
from onnxmem.packing.build import ORT_LIMIT, build, load_options
from onnxmem.progress import OnProgress, Progress
from onnxmem.session.modes import Mode, Setting, check_version, find_mode
from onnxmem.session.package import is_package, mode_for, open_package
from onnxmem.sharing.gather import Gathering, OnHold
from onnxmem.sharing.sharing import BASELINES, Cold, Group, Latency, Sharing, Worker
from onnxmem.unknown import Unknown

ONNX_MODES = ("stock", "external", "mapped", "prepacked")
ORT_MODES = ("ort", "ort-mapped", "ort-mapped-packed")

# Runs in a row before it is another's turn.
_STREAK = 2
_FOREVER = 1e6
_NOT_ASKED = Unknown("it was not asked for")
_NO_TIME = "timed out: the time limit was over before it began"


@dataclass(frozen=True)
class _Files:
    """A model in the form that a mode reads."""

    model: Path
    files: tuple[Path, ...]
    options: dict[str, Setting]


def share(
    model: str | PathLike[str],
    workers: Sequence[int] = (1, 2, 4),
    modes: Sequence[str] | None = None,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    runs: int = 10,
    threads: int | None = None,
    device: str = HOST,
    options: Mapping[str, Setting] | None = None,
    config: Mapping[str, str] | None = None,
    time_limit: float = 3600.0,
    iterations: int = 1,
    cold: bool = True,
    on_hold: OnHold | None = None,
    on_progress: OnProgress | None = None,
) -> Sharing:
    """Measure N processes of a model together: `share("model.onnx", workers=(1, 4), modes=("stock", "prepacked"))`.

    `runs` is the number of rounds in which the modes take turns to be timed. With more `iterations` every group is
    made again and rounds are added. With `cold`, one more process of each mode loads with the page cache emptied of
    the model. `on_hold(pids)` is called while a group is alive. On another `device` (`cuda`, `cuda:1`) each process has
    weights of its own there, and what all of them take on it is in the result, too.
    """
    source = Path(model)
    scenario = Scenario.of(locals())
    check_device(device)
    # Whoever looks at groups has all the time there is.
    deadline = Deadline(time_limit if on_hold is None else _FOREVER)
    counts = worker_counts(workers)
    if iterations < 1:
        raise UsageError(f"iterations must be at least 1; it is {iterations}")
    chosen = _modes(source, modes, device)

    def say(stage: str) -> None:
        if on_progress:
            on_progress(Progress(stage))

    signature = read_signature(source)
    feeds = make_feeds(signature, scenario)
    with temporary_folder() as folder:
        forms = _prepare(source, signature, chosen, folder, say)
        saved = feeds.save(folder)
        files = {mode.name: forms[_form(mode, source)] for mode in chosen}
        lab = _Lab(files, feeds.described(), saved, scenario, deadline, say)
        colds = {mode.name: lab.cold(mode, wanted=cold) for mode in chosen}
        groups = [Group(mode=mode.name, count=n, cold=colds[mode.name]) for n in counts for mode in chosen]
        for number in range(iterations):
            again = f", {number + 1} of {iterations}" if iterations > 1 else ""
            groups = [group if group.failures else lab.gather(group, again, on_hold) for group in groups]
        latencies = lab.race(chosen, iterations)
        weights = _weights_bytes(forms, signature)
    return Sharing(
        model=source.name,
        file_bytes=signature.file_size,
        weights_bytes=weights,
        threads=scenario.threads,
        runs=scenario.runs,
        fed=feeds.described(),
        groups=tuple(groups),
        latencies=latencies,
        device=device,
    )


def worker_counts(workers: Sequence[int]) -> tuple[int, ...]:
    """Each number of workers once; refused where nobody could have so many."""
    counts = tuple(dict.fromkeys(workers))
    if not counts or any(not 1 <= count <= 256 for count in counts):
        raise UsageError("numbers of workers must be between 1 and 256", hint="for example --workers 1,2,4")
    return counts


def _modes(source: Path, names: Sequence[str] | None, device: str) -> tuple[Mode, ...]:
    if not names:
        if device != HOST:
            names = DEVICE_MODES
        elif is_package(source):
            names = (mode_for(None, source),)
        else:
            names = ORT_MODES if source.suffix == ".ort" else ONNX_MODES
    import onnxruntime  # noqa: PLC0415

    chosen = tuple(find_mode(name) for name in dict.fromkeys(names))
    for mode in chosen:
        check_version(mode, onnxruntime.__version__)
    return chosen


def _form(mode: Mode, source: Path) -> str:
    """What a mode reads; planned runs come on top of whatever a package is."""
    return open_package(source).mode.form if mode.name == "planned" and is_package(source) else mode.form


def _prepare(
    source: Path, signature: Signature, modes: Sequence[Mode], folder: Path, say: Callable[[str], None]
) -> dict[str, _Files]:
    """The model in every form that a mode needs."""
    forms = {}
    package = open_package(source) if is_package(source) else None
    original = Path(package.manifest.source.path) if package else source
    for form in dict.fromkeys(_form(mode, source) for mode in modes):
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
            forms[form] = _Files(target, tuple(place.iterdir()), load_options(form))
    return forms


@dataclass(frozen=True)
class _Lab:
    """What is measured, one question each."""

    files: Mapping[str, _Files]
    fed: Fed
    feeds: SavedFeeds
    scenario: Scenario
    deadline: Deadline
    say: Callable[[str], None]

    def cold(self, mode: Mode, *, wanted: bool) -> Cold:
        """How long do loading and the first run take if the files have to come from the disk?"""
        if not wanted:
            return Cold(load_seconds=_NOT_ASKED, first_run=_NOT_ASKED)
        if self.deadline.passed:
            return Cold(load_seconds=Unknown(_NO_TIME), first_run=Unknown(_NO_TIME))
        self.say(f"{mode.name}: loading with a cold cache")
        kept = drop(self.files[mode.name].files)
        if kept:
            return Cold(load_seconds=kept, first_run=kept)
        result = Gathering([self._task(mode)], self.fed, self.deadline.left).run()[0]
        if isinstance(result, str):
            return Cold(load_seconds=Unknown(result), first_run=Unknown(result))
        return Cold(load_seconds=result.load_seconds, first_run=result.first_run)

    def gather(self, group: Group, again: str, on_hold: OnHold | None) -> Group:
        """The group with one more repetition."""
        if self.deadline.passed:
            return group if group.rounds else replace(group, failures=(_NO_TIME,))
        self.say(f"{group.mode}: {group.count} worker{'s' if group.count > 1 else ''}{again}")
        tasks = [self._task(find_mode(group.mode))] * group.count
        results = Gathering(tasks, self.fed, self.deadline.left).run(on_hold)
        failures = tuple(worker for worker in results if isinstance(worker, str))
        if failures:
            return replace(group, failures=failures)
        return replace(group, rounds=(*group.rounds, tuple(w for w in results if isinstance(w, Worker))))

    def race(self, modes: Sequence[Mode], iterations: int) -> tuple[Latency, ...]:
        """The seconds of each run: one worker of each mode, all alive, taking turns."""
        if self.deadline.passed:
            return tuple(Latency(mode=mode.name, seconds=Unknown(_NO_TIME), of_baseline=None) for mode in modes)
        self.say("latency: all modes take turns")
        rounds = self.scenario.runs * iterations
        tasks = [self._task(mode, rounds=rounds) for mode in modes]
        results = Gathering(tasks, self.fed, self.deadline.left).run()
        seconds = {
            mode.name: Unknown(worker) if isinstance(worker, str) else worker.latencies
            for mode, worker in zip(modes, results, strict=True)
        }
        base = next((seconds[mode.name] for mode in modes if mode.name in BASELINES), _NOT_ASKED)
        return tuple(Latency(mode=name, seconds=own, of_baseline=_paired(own, base)) for name, own in seconds.items())

    def _task(self, mode: Mode, rounds: int = 1) -> tuple[Task, tuple[Path, ...]]:
        form = self.files[mode.name]
        task = worker_task(self.scenario, self.feeds)._replace(
            model=str(form.model),
            mode=mode.name,
            # The second run takes more than the first, where there is a memory pattern; from then on nothing changes.
            runs=_STREAK,
            rounds=rounds,
            options={**form.options, **self.scenario.options},
        )
        return task, form.files


def _paired(own: tuple[float, ...] | Unknown, base: tuple[float, ...] | Unknown) -> float | None:
    if isinstance(own, Unknown) or isinstance(base, Unknown):
        return None
    return statistics.median(one / other for one, other in zip(own, base, strict=True))


def _weights_bytes(forms: dict[str, _Files], signature: Signature) -> int:
    """One copy of the weights, as they are used."""
    for form in ("external", "prepacked"):
        if form in forms:
            path = forms[form].model
            model = open_package(path).model if is_package(path) else path
            return describe_weights(model)[0].used
    return signature.file_size
