"""How do I make a package, so that many processes share one copy of the weights?

    request ─▶ build (ONNX Runtime writes) ─▶ order, plans ─▶ hash ─▶ check (outputs equal) ─▶ manifest ─▶ rename

All of it happens in a folder beside the target that gets its name only at the very end, as a whole: a kill at any
moment leaves the old package, the new one, or none, and the next `pack` clears away what was left.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError, UsageError
from onnxmem.folders import replacing_folder, sync, temporary_folder
from onnxmem.measurement.feeds import Feeds, make_feeds
from onnxmem.measurement.measure import with_hint
from onnxmem.measurement.protocol import Task
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import Signature, read_signature
from onnxmem.measurement.trial import run_trial
from onnxmem.measurement.verdict import Verdict
from onnxmem.packing.blobs import always_read, describe_weights
from onnxmem.packing.build import ORT_LIMIT, build, load_options
from onnxmem.packing.ordering import Ordered, put_in_order
from onnxmem.packing.packed import Packed
from onnxmem.packing.plan_feeds import Shapes, feeds_for_plans
from onnxmem.packing.recording import LoadSettings, record_plan
from onnxmem.progress import OnProgress, Progress
from onnxmem.schedule.orders import check_order_name
from onnxmem.session.modes import DISABLE_PREPACKING, MODES, Mode, check_version, find_mode
from onnxmem.session.package import (
    MANIFEST,
    PLANS,
    Manifest,
    PackedInput,
    Source,
    StoredFile,
    Verified,
    hash_file,
    is_package,
    open_package,
    this_cpu,
)
from onnxmem.session.packed_graphs import PackedPlan
from onnxmem.units import format_bytes

# Searches end sooner where there is nothing better to be found.
ORDER_SECONDS, PLAN_SECONDS = 10.0, 10.0

PACKABLE = tuple(mode for mode in MODES if mode.form != "any")


@dataclass(frozen=True, kw_only=True)
class _Request:
    source: Path
    folder: Path
    mode: Mode
    scenario: Scenario
    signature: Signature
    feeds: Feeds
    order: str | None
    plans: tuple[tuple[Feeds, ...], ...]
    """What is recorded for each plan."""
    deadline: Deadline
    on_progress: OnProgress

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        self.on_progress(Progress(stage, done, total, "bytes"))


def pack(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    mode: str = "prepacked",
    *,
    order: str | None = None,
    plans: Iterable[Shapes] = (),
    force: bool = False,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    time_limit: float = 3600.0,
    on_progress: OnProgress | None = None,
) -> Packed:
    """Write a package of a model, checked to give the same outputs: `pack("model.onnx", "model.pack")`.

    An existing package is replaced only with `force`, and anything else that is there never. The check runs the model
    in fresh processes, on arrays from an .npz file or on inputs that are generated with these shapes, ranges and seed.
    Of several files it takes the first; runs with all of them are recorded, and what they have in common is planned.
    With `order` ("best", or another name of `onnxmem plan --order`) its nodes run in that order, if that needs less
    memory on these inputs than ONNX Runtime's own. For each combination of input shapes in `plans` the places of all
    tensors are solved now, so that the first run of a planned session is already planned. All of it may take
    `time_limit` seconds.
    """
    source, target, chosen, deadline = Path(model), Path(folder), find_mode(mode), Deadline(time_limit)
    _check_target(target, force=force)
    if chosen.form == "any":
        names = ", ".join(mode.name for mode in PACKABLE)
        raise UsageError(f"mode '{mode}' loads the model as it is, there is nothing to pack", hint=f"choose {names}")
    _check_order(order, chosen)
    import onnxruntime  # noqa: PLC0415

    check_version(chosen, onnxruntime.__version__)
    plans = tuple(plans)
    if plans and not (shapes or dims or inputs):
        shapes = plans[0]  # the one shape that is known to matter
    paths = () if inputs is None else (inputs,) if isinstance(inputs, str | os.PathLike) else inputs
    files: list[Path | None] = [Path(path) for path in paths] or [None]
    scenario = Scenario.of({**locals(), "inputs": files[0], "mode": None, "runs": 1})
    signature = read_signature(source)
    given = [make_feeds(signature, replace(scenario, inputs=file)) for file in files]
    request = _Request(
        source=source,
        folder=target,
        mode=chosen,
        scenario=scenario,
        signature=signature,
        feeds=given[0],
        order=order,
        plans=feeds_for_plans(signature, scenario, given, plans),
        deadline=deadline,
        on_progress=on_progress or (lambda _: None),
    )
    _check_room(request)
    with replacing_folder(target) as temporary:
        _write(request, temporary, onnxruntime.__version__)
    return Packed(folder=target, manifest=open_package(target).manifest)


def repack(
    folder: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    *,
    order: str | None = None,
    plans: Iterable[Shapes] | None = None,
    shapes: Shapes | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    time_limit: float = 3600.0,
    on_progress: OnProgress | None = None,
) -> Packed:
    """Make a package again for this ONNX Runtime and CPU, in its mode and order and with plans for the same shapes.

    `model` says where its source is now, if it has moved; whatever else is given has precedence over the package's own.
    """
    manifest = open_package(Path(folder)).manifest
    source = Path(manifest.source.path if model is None else model)
    if not source.is_file():
        raise UsageError(
            f"the model that '{folder}' was made from is not at '{source}' any more", hint="give its new path"
        )
    if model is None and hash_file(source).sha256 != manifest.source.files[0].sha256:
        raise UsageError(
            f"'{source}' is not the model that '{folder}' was made from any more",
            hint=f"if the new one is meant: onnxmem pack {source} -o {folder} --force",
        )
    if manifest.order is not None:
        order = order or manifest.order.asked
        if not (shapes or dims or inputs):
            # An order is the best one for certain shapes.
            declared = read_signature(source).shapes
            fed = manifest.verified.inputs.items()
            shapes = {name: array.shape for name, array in fed if declared.get(name) is not None}
    return pack(
        source,
        folder,
        manifest.mode,
        order=order,
        plans=[plan.inputs for plan in manifest.plans] if plans is None else plans,
        force=True,
        shapes=shapes,
        dims=dims,
        inputs=inputs,
        ranges=ranges,
        seed=seed,
        time_limit=time_limit,
        on_progress=on_progress,
    )


def _check_target(target: Path, *, force: bool) -> None:
    if not target.parent.is_dir():
        raise UsageError(f"cannot write '{target}': there is no folder '{target.parent}'")
    if not target.exists() and not target.is_symlink():
        return
    if not target.is_dir() or target.is_symlink():
        raise UsageError(f"'{target}' is there already, and it is no package", hint="choose another name")
    if not any(target.iterdir()):
        return
    if not is_package(target):
        raise UsageError(f"'{target}' holds other things than a package", hint="choose another folder")
    if not force:
        raise UsageError(f"there is a package in '{target}' already", hint="--force replaces it")


def _check_order(order: str | None, mode: Mode) -> None:
    if order is None:
        return
    check_order_name(order)
    if mode.form == "ort":
        raise UsageError(
            f"an order needs a package of mode prepacked, external or mapped: '{mode.name}' keeps its own",
            hint="choose one of them, or leave out --order",
        )


def _check_room(request: _Request) -> None:
    """Ask for the room before the work; it is at least what the model takes, and for packed weights up to twice."""
    size, form = request.signature.file_size, request.mode.form
    if form == "ort" and size > ORT_LIMIT:
        raise ModelError(
            f"'{request.source.name}' has {format_bytes(size)}, and the ORT format ends at 2 GiB",
            hint="choose mode prepacked, external or mapped",
        )
    free = shutil.disk_usage(request.folder.parent).free
    if free < size:
        raise UsageError(
            f"there is no room for a package of '{request.source.name}' in '{request.folder.parent}': "
            f"it needs {format_bytes(size)} or more, and {format_bytes(free)} are free"
        )


def _write(request: _Request, temporary: Path, onnxruntime: str) -> None:
    sources = _hashed(request, "reading", request.signature.files)
    expected = request.signature.file_size * (2 if request.mode.form == "prepacked" else 1)

    def written(size: int) -> None:
        request.report("packing", size, max(size, expected))

    model = build(request.source, temporary, request.mode.form, written)
    settings = LoadSettings(load_options(request.mode.form), {})
    ordered = _order(request, model, settings)
    settings = ordered.settings if ordered else settings
    plans = _plan(request, model, settings)
    paths = tuple(sorted(temporary.iterdir()))
    for path in paths:
        sync(path)
    files = _hashed(request, "hashing", paths)
    weights, notes = describe_weights(model)
    read = always_read(model)
    verified = _check_outputs(request, model, settings)
    manifest = Manifest(
        mode=request.mode.name,
        model=model.name,
        source=Source(str(request.source.absolute()), sources),
        onnxruntime=onnxruntime,
        onnxmem=version("onnxmem"),
        cpu=this_cpu(),
        options=settings.options,
        config=settings.config,
        files=files,
        weights=weights,
        verified=verified,
        notes=(*notes, *([ordered.note] if ordered and ordered.note else [])),
        order=ordered.order if ordered else None,
        plans=plans,
        always_read=read,
    )
    (temporary / MANIFEST).write_text(manifest.text())
    sync(temporary / MANIFEST)


def _order(request: _Request, model: Path, plain: LoadSettings) -> Ordered | None:
    if request.order is None:
        return None
    with temporary_folder() as folder:
        return put_in_order(
            request.source,
            model,
            request.order,
            mode=request.mode,
            plain=plain,
            feeds=request.feeds.save(folder),
            shapes={name: array.shape for name, array in request.feeds.arrays.items()},
            seconds=min(ORDER_SECONDS, request.deadline.left),
            timeout=request.deadline.left,
            on_stage=request.report,
        )


def _plan(request: _Request, model: Path, settings: LoadSettings) -> tuple[PackedPlan, ...]:
    """Record and solve a run for each combination of shapes, write the plans beside the model, and describe them."""
    if not request.plans:
        return ()
    plans, loaded = [], settings.under(request.mode)
    for several in request.plans:
        arrays = several[0].arrays.items()
        shapes = ", ".join(f"{name} {'x'.join(map(str, array.shape))}" for name, array in arrays)
        request.report(f"planning a run with {shapes or 'no inputs'}")
        with temporary_folder() as folder:
            seconds = min(PLAN_SECONDS, request.deadline.left)
            timeout = request.deadline.left
            saved = [feeds.save(folder, f"run-{number}-") for number, feeds in enumerate(several)]
            plans.append(record_plan(model, loaded, saved, seconds=seconds, timeout=timeout))
    (model.parent / PLANS).write_text(json.dumps(plans))
    return tuple(
        PackedPlan(
            inputs={name: tuple(dims) for name, dims in plan["inputs"]},
            peak_bytes=plan.get("sharing", plan)["peak_bytes"],
            lower_bound_bytes=plan.get("sharing", plan)["lower_bound_bytes"],
        )
        for plan in plans
    )


def _hashed(request: _Request, stage: str, paths: tuple[Path, ...]) -> tuple[StoredFile, ...]:
    total, done = sum(path.stat().st_size for path in paths), 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        request.report(stage, done, total)

    return tuple(hash_file(path, read) for path in paths)


def _check_outputs(request: _Request, packed: Path, settings: LoadSettings) -> Verified:
    """Run the original and the packed model in fresh processes on the same inputs: every bit must be equal."""
    mode, source = request.mode, request.source
    # Kernels that are given unpacked weights add in another order. So do the original's when its packing is off, and
    # nothing else may differ.
    like = {} if mode.exact else {DISABLE_PREPACKING: "1"}
    reference = "stock" if mode.exact else "stock without packing"
    with temporary_folder() as folder:
        feeds = request.feeds.save(folder)
        original = Task(str(source), feeds, config=like)
        # Without a manifest yet it is a model like any other, which a session may not take for one of this mode.
        loaded = settings.under(mode)
        package = Task(str(packed), feeds, options=loaded.options, config=loaded.config)
        expected = _run(request, f"running {source.name} as {reference}", original)
        outputs = _run(request, f"running the package as {mode.name}", package)
    if outputs != expected:
        raise ModelError(
            f"'{source.name}' cannot be packed as '{mode.name}': its outputs are not those of {reference}",
            hint="a package would compute something else; please report the model",
        )
    inputs = {n: PackedInput(dtype=str(a.dtype), shape=a.shape) for n, a in request.feeds.arrays.items()}
    return Verified(reference=reference, inputs=inputs, seed=request.scenario.seed, outputs_sha256=outputs)


def _run(request: _Request, stage: str, task: Task) -> str:
    """The hash of the outputs."""
    request.report(stage)
    trial = with_hint(run_trial(task, timeout=request.deadline.left), request.feeds.described())
    if not trial.verdict.ok:
        raise _failure(trial.verdict, stage, original=task.model == str(request.source))
    if len(set(trial.outputs)) > 1:
        raise ModelError(
            "the model computes something else each time it runs, so that no package of it can be checked",
            hint="does it draw random numbers? Give them a seed, or load the model as it is",
        )
    return trial.outputs[0]


def _failure(verdict: Verdict, stage: str, *, original: bool) -> ModelError:
    if not original and "Required inputs" in verdict.message:
        return ModelError(
            "the model lists weights among its inputs, and in this form callers would have to feed some of them",
            hint="choose mode prepacked, external or mapped",
        )
    hint = verdict.hint or "give inputs it can run on: --shape, --dim or --inputs"
    return ModelError(
        f"{stage} did not end well: {str(verdict)[:300]}", hint=hint if original else "please report the model"
    )
