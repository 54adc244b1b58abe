"""How do I make a package, so that many processes share one copy of the weights?

    request ─▶ build (ONNX Runtime writes) ─▶ order, plans ─▶ hash ─▶ check (outputs equal) ─▶ manifest ─▶ rename

All of it happens in a folder beside the target that gets its name only at the very end, as a whole: a kill at any
moment leaves the old package, the new one, or none, and the next `pack` clears away what was left.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from onnxmem.commands import path_word
from onnxmem.deadline import Deadline
from onnxmem.errors import ModelError, UsageError
from onnxmem.estimation.tiling import checked_extra_work
from onnxmem.folders import replacing_folder, sync, temporary_folder
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.packing.blobs import always_read, describe_weights, leave_tables_on_disk
from onnxmem.packing.build import ORT_LIMIT, build, load_options
from onnxmem.packing.ordering import Ordered, put_in_order
from onnxmem.packing.packed import Packed
from onnxmem.packing.parity import check_outputs, check_plans, check_tiled
from onnxmem.packing.plan_feeds import Shapes, feeds_for_plans
from onnxmem.packing.recording import LoadSettings, record_plan
from onnxmem.packing.request import PackRequest
from onnxmem.packing.tiling import Planned, Tiled, TileJob, shapes_text
from onnxmem.packing.tiling import tile as tile_graphs
from onnxmem.progress import OnProgress
from onnxmem.schedule.orders import check_order_name
from onnxmem.session.modes import MODES, Mode, check_version, find_mode
from onnxmem.session.package import (
    MANIFEST,
    PLANS,
    Manifest,
    Source,
    is_package,
    open_package,
    this_cpu,
)
from onnxmem.session.packed_graphs import PackedPlan, TileSettings
from onnxmem.session.stored_files import StoredFile, hash_file
from onnxmem.units import format_bytes

# Searches end sooner where there is nothing better to be found.
ORDER_SECONDS, PLAN_SECONDS = 10.0, 10.0

PACKABLE = tuple(mode for mode in MODES if mode.form != "any")


def pack(
    model: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    mode: str = "prepacked",
    *,
    order: str | None = None,
    plans: Iterable[Shapes] = (),
    tile: bool = False,
    extra_work: float | None = None,
    budget: int | None = None,
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
    tensors are solved now, so that the first run of a planned session is already planned.

    With `tile` the package gets one more graph for each of these combinations (or for the shapes of the inputs): one
    that computes parts of the model piece by piece, with at most `extra_work` more to compute (0.1 is 10 %), where that
    takes less memory and gives the same outputs, bit for bit. With a `budget` in bytes the least is done so that a run
    needs no more than that, beside the weights; BudgetExceeded says what is possible if nothing does. All of it may
    take `time_limit` seconds.
    """
    source, target, chosen, deadline = Path(model), Path(folder), find_mode(mode), Deadline(time_limit)
    _check_target(target, force=force)
    if chosen.form == "any":
        names = ", ".join(mode.name for mode in PACKABLE)
        raise UsageError(f"mode '{mode}' loads the model as it is, there is nothing to pack", hint=f"choose {names}")
    tiles = _tile_settings(tile=tile, extra_work=extra_work, budget=budget, mode=chosen)
    if tiles:
        order = order or "best"  # which costs nothing
    if order is not None:
        check_order_name(order)
        _check_form(chosen, "an order needs", "--order")
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
    if tiles and not plans:
        plans = tuple({name: array.shape for name, array in feeds.arrays.items()} for feeds in given)
    request = PackRequest(
        source=source,
        folder=target,
        mode=chosen,
        scenario=scenario,
        signature=signature,
        feeds=given[0],
        order=order,
        plans=feeds_for_plans(signature, scenario, given, plans),
        tile=tiles,
        deadline=deadline,
        on_progress=on_progress or (lambda _: None),
    )
    _check_room(request)
    with replacing_folder(target) as temporary:
        _write(request, temporary, onnxruntime.__version__)
        _check_target(target, force=force)  # somebody else may have put something there meanwhile
    package = open_package(target)
    leave_tables_on_disk(package.model)
    return Packed(folder=target, manifest=package.manifest)


def repack(
    folder: str | os.PathLike[str],
    model: str | os.PathLike[str] | None = None,
    *,
    order: str | None = None,
    plans: Iterable[Shapes] | None = None,
    tile: bool | None = None,
    extra_work: float | None = None,
    budget: int | None = None,
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
            hint="if the new one is meant: "
            + shlex.join(["onnxmem", "pack", path_word(source), "-o", str(folder), "--force"]),
        )
    if manifest.order is not None:
        order = order or manifest.order.asked
        if not (shapes or dims or inputs):
            # An order is the best one for certain shapes.
            declared = read_signature(source).shapes
            fed = manifest.verified.inputs.items()
            shapes = {name: array.shape for name, array in fed if declared.get(name) is not None}
    was = manifest.tile
    if was is not None and tile is not False:
        tile = True
        if extra_work is None and budget is None:
            extra_work, budget = was.extra_work, was.budget_bytes
    return pack(
        source,
        folder,
        manifest.mode,
        order=order,
        tile=bool(tile),
        extra_work=extra_work,
        budget=budget,
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


def _tile_settings(*, tile: bool, extra_work: float | None, budget: int | None, mode: Mode) -> TileSettings | None:
    usual = checked_extra_work(tile=tile or budget is not None, extra_work=extra_work)
    if usual is None:
        return None
    _check_form(mode, "tiles need", "--tile")
    if budget is not None and budget <= 0:
        raise UsageError(f"a budget is more than nothing, and not {budget}")
    # What a budget takes is allowed, if nobody says how far it may go.
    return TileSettings(extra_work=usual if budget is None else extra_work, budget_bytes=budget)


def _check_form(mode: Mode, what: str, option: str) -> None:
    if mode.form == "ort":
        raise UsageError(
            f"{what} a package of mode prepacked, external or mapped: '{mode.name}' keeps its own",
            hint=f"choose one of them, or leave out {option}",
        )


def _check_room(request: PackRequest) -> None:
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


def _write(request: PackRequest, temporary: Path, onnxruntime: str) -> None:
    sources = _hashed(request, "reading", request.signature.files)
    expected = request.signature.file_size * (2 if request.mode.form == "prepacked" else 1)

    def written(size: int) -> None:
        request.report("writing the package", size, max(size, expected))

    model = build(request.source, temporary, request.mode.form, written)
    settings = LoadSettings(load_options(request.mode.form), {})
    ordered = _order(request, model, settings)
    settings = ordered.settings if ordered else settings
    plans = _plan(request, model, settings)
    tiled = _tile(request, model, settings, ordered, plans)
    paths = tuple(sorted(temporary.iterdir()))
    for path in paths:
        sync(path)
    files = _hashed(request, "hashing", paths)
    weights, notes = describe_weights(model)
    read, mapped = always_read(model), always_read(model, packed_only=True)
    verified = check_outputs(request, model, settings)
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
        plans=tuple(_packed(plan) for plan in plans),
        always_read=read,
        always_mapped=mapped,
        tile=request.tile,
    )

    def write(final: Manifest) -> None:
        there = tuple(file for file in files if (temporary / file.name).exists())
        (temporary / MANIFEST).write_text(replace(final, files=there).text())

    write(check_tiled(request, temporary, manifest, tiled, write))
    check_plans(request, temporary)
    sync(temporary / MANIFEST)


def _order(request: PackRequest, model: Path, plain: LoadSettings) -> Ordered | None:
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


def _plan(request: PackRequest, model: Path, settings: LoadSettings) -> tuple[Mapping[str, Any], ...]:
    """Record and solve a run for each combination of shapes, and write the plans beside the model."""
    if not request.plans:
        return ()
    plans, loaded = [], settings.under(request.mode)
    for several in request.plans:
        shapes = {name: array.shape for name, array in several[0].arrays.items()}
        request.report(f"planning a run with {shapes_text(shapes)}")
        with temporary_folder() as folder:
            seconds = min(PLAN_SECONDS, request.deadline.left)
            timeout = request.deadline.left
            saved = [feeds.save(folder, f"run-{number}-") for number, feeds in enumerate(several)]
            plans.append(record_plan(model, loaded, saved, seconds=seconds, timeout=timeout))
    (model.parent / PLANS).write_text(json.dumps(plans))
    return tuple(plans)


def _packed(plan: Mapping[str, Any]) -> PackedPlan:
    return PackedPlan(
        inputs={name: tuple(dims) for name, dims in plan["inputs"]},
        peak_bytes=plan.get("sharing", plan)["peak_bytes"],
        lower_bound_bytes=plan.get("sharing", plan)["lower_bound_bytes"],
    )


def _tile(
    request: PackRequest,
    model: Path,
    settings: LoadSettings,
    ordered: Ordered | None,
    plans: tuple[Mapping[str, Any], ...],
) -> tuple[Tiled, ...]:
    if request.tile is None:
        return ()
    assert ordered is not None
    job = TileJob(
        model=model,
        mode=request.mode,
        plain=settings.under(request.mode),
        settings=request.tile,
        default_bound=ordered.order.default_bound,
        bound=ordered.order.bound,
        order=ordered.order.name,
        deadline=request.deadline,
        on_stage=request.report,
    )
    return tile_graphs(job, [Planned(feeds=feeds, plan=plan) for feeds, plan in zip(request.plans, plans, strict=True)])


def _hashed(request: PackRequest, stage: str, paths: tuple[Path, ...]) -> tuple[StoredFile, ...]:
    total, done = sum(path.stat().st_size for path in paths), 0

    def read(count: int) -> None:
        nonlocal done
        done += count
        request.report(stage, done, total)

    return tuple(hash_file(path, read) for path in paths)
