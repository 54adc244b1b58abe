"""Does a package compute what its source does? Both are run in fresh processes on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from onnxmem.errors import BudgetExceeded, ModelError
from onnxmem.folders import temporary_folder
from onnxmem.measurement.feeds import Array, Feeds
from onnxmem.measurement.measure import with_hint
from onnxmem.measurement.protocol import SavedFeeds, Task
from onnxmem.measurement.trial import run_trial
from onnxmem.measurement.verdict import TIMED_OUT, Verdict
from onnxmem.packing.outputs import Outputs, outputs_of
from onnxmem.packing.recording import LoadSettings
from onnxmem.packing.request import PackRequest
from onnxmem.packing.tiling import Tiled, remove, shapes_text
from onnxmem.session.modes import DISABLE_PREPACKING
from onnxmem.session.package import Manifest, PackedInput, Verified
from onnxmem.session.packed_graphs import Reduced

# Outputs of tiled graphs are compared on so many inputs, or more.
_INPUTS = 3


def check_outputs(request: PackRequest, packed: Path, settings: LoadSettings) -> Verified:
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


def check_tiled(
    request: PackRequest, folder: Path, manifest: Manifest, tiled: Sequence[Tiled], write: Callable[[Manifest], None]
) -> Manifest:
    """The manifest of a package, with those of its tiled graphs whose outputs are the source's, bit for bit.

    Sessions of the package itself are run, as a caller would make them. `write` puts a manifest into the folder.
    """
    like = {} if request.mode.exact else {DISABLE_PREPACKING: "1"}
    kept = []
    budget = request.tile.budget_bytes if request.tile else None
    for each in tiled:
        if each.graph is None and not each.split:
            kept.append(each)
            continue
        shapes = shapes_text(each.reduced.inputs)
        request.report(f"comparing outputs of tiles for {shapes}")
        with temporary_folder() as inputs:
            feeds = [more.save(inputs, f"run-{number}-") for number, more in enumerate(_several(request, each.reduced))]
            left = request.deadline.left
            settings = LoadSettings({}, like)
            expected = outputs_of(request.source, feeds, mode="stock", settings=settings, timeout=left)
            manifest = replace(
                manifest,
                tiled=(each.graph,) if each.graph else (),
                batch_budget=budget if each.split else None,
                inputs=expected.declared_inputs,
                outputs=expected.declared_outputs,
            )
            write(manifest)
            why = _difference(request, folder, feeds, expected)
        if why:
            why = f"what was done for {shapes} is left out: {why}"
            remove(each, folder)
            if budget is not None:
                raise BudgetExceeded(f"the budget cannot be met: {why}")
        kept.append(each.without(why) if why else each)
    return replace(
        manifest,
        tiled=tuple(each.graph for each in kept if each.graph),
        batch_budget=budget if any(each.split for each in kept) else None,
        reduced=tuple(each.reduced for each in kept),
        notes=(*manifest.notes, *dict.fromkeys(each.note for each in kept if each.note)),
    )


def check_plans(request: PackRequest, folder: Path) -> None:
    """Run sessions of the package on what its plans were made with: buffers that share a place must change nothing."""
    if not request.plans:
        return
    request.report("comparing outputs inside the plans")
    like = {} if request.mode.exact else {DISABLE_PREPACKING: "1"}
    with temporary_folder() as inputs:
        feeds = [several[0].save(inputs, f"plan-{number}-") for number, several in enumerate(request.plans)]
        stock, left = LoadSettings({}, like), request.deadline.left
        expected = outputs_of(request.source, feeds, mode="stock", settings=stock, threads=(0,), timeout=left)
        found = outputs_of(folder, feeds, mode=None, threads=(0,), timeout=request.deadline.left)
    if found.digests != expected.digests:
        raise ModelError(
            f"'{request.source.name}' cannot be packed with plans: inside them its outputs are others",
            hint="leave the plans out, and please report the model",
        )


def _difference(request: PackRequest, folder: Path, feeds: Sequence[SavedFeeds], expected: Outputs) -> str:
    """Why sessions of the package are not what was expected; empty if they are."""
    try:
        found = outputs_of(folder, feeds, mode=None, timeout=request.deadline.left)
    except ModelError as error:
        return str(error)
    return "its outputs are not the model's, bit for bit" if found.digests != expected.digests else found.unplanned


def _several(request: PackRequest, reduced: Reduced) -> list[Feeds]:
    """Inputs to compare outputs on: those that plans were made with, and variations of them if they are few."""
    shapes = dict(reduced.inputs)
    given = next(several for several in request.plans if {n: a.shape for n, a in several[0].arrays.items()} == shapes)
    random, several = np.random.default_rng(request.scenario.seed), list(given)
    while len(several) < _INPUTS:
        arrays = {name: _varied(array, random) for name, array in given[0].arrays.items()}
        several.append(replace(given[0], arrays=arrays))
    return several


def _varied(array: Array, random: np.random.Generator) -> Array:
    """Other numbers in the same range. What are no floats may be indices or lengths, which others might not fit."""
    return (array * random.uniform(0.5, 1.0, array.shape)).astype(array.dtype) if array.dtype.kind == "f" else array


def _run(request: PackRequest, stage: str, task: Task) -> str:
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
    if verdict.kind == TIMED_OUT:
        return ModelError(f"{stage} {verdict}", hint=verdict.hint)
    hint = verdict.hint or "give inputs it can run on: --shape, --dim or --inputs"
    return ModelError(
        f"{stage} did not end well: {str(verdict)[:300]}", hint=hint if original else "please report the model"
    )
