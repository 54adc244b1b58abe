"""What is this peak made of, and what would make it smaller? A model, which is then measured, or a measurement."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxmem.documents import Document
from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.explanation import Explanation
from onnxmem.explaining.findings import QUICK, RULES, Rule, findings_of
from onnxmem.measurement.measure import measure
from onnxmem.measurement.measurement import Measurement
from onnxmem.progress import OnProgress, Progress
from onnxmem.units import format_bytes


def explain(
    subject: str | os.PathLike[str] | Measurement,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    dims: Mapping[str, int] | None = None,
    inputs: str | os.PathLike[str] | None = None,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    mode: str | None = None,
    runs: int = 5,
    threads: int | None = None,
    time_limit: float = 600.0,
    on_progress: OnProgress | None = None,
) -> Explanation:
    """Explain a model's peak: `explain("model.onnx", mode="tuned")`, or one that was measured: `explain("saved.json")`.

    A model is measured first, with these options as in `measure`; a measurement, or the JSON file of one, is taken as
    it is. What the peak is made of is told best with the model at hand: from a saved measurement it is looked up where
    it was, and if it is gone or has changed, the parts are coarser and `notes` says so.
    """
    if isinstance(subject, Measurement):
        measurement = subject
    elif Path(subject).suffix.lower() == ".json":
        given = {"shapes": shapes, "dims": dims, "inputs": inputs, "ranges": ranges, "mode": mode, "threads": threads}
        if any(given.values()):
            named = next(name for name, value in given.items() if value)
            raise UsageError(
                f"'{subject}' was measured already: {named} cannot be changed any more", hint="name the model instead"
            )
        measurement = read_measurement(Path(subject))
    else:
        measurement = measure(
            subject,
            shapes=shapes,
            dims=dims,
            inputs=inputs,
            ranges=ranges,
            seed=seed,
            mode=mode,
            runs=runs,
            threads=threads,
            time_limit=time_limit,
            on_progress=on_progress,
        )
    if on_progress:
        on_progress(Progress("explaining"))
    return explain_measurement(measurement)


def explain_measurement(measurement: Measurement, rules: Sequence[Rule] = RULES) -> Explanation:
    """The parts of a measurement, and what these rules find."""
    if not measurement.verdict.ok:
        raise ModelError(
            f"there is no peak to explain: {measurement.verdict}", hint=measurement.verdict.hint or "onnxmem measure"
        )
    if measurement.device:
        raise UsageError(
            f"this was measured on {measurement.device.name}, and peaks are explained in the CPU's memory",
            hint="onnxmem measure MODEL -o RESULT.json, without --device",
        )
    explained = Explained.of(measurement)
    notes = [f"The parts are coarser than they could be: {explained.note}."] if explained.note else []
    size, beside = measurement.output_bytes, explained.part("outputs")
    if explained.mode == "planned" and isinstance(size, int) and beside < size:
        notes.append(
            f"Outputs take {format_bytes(size)}, of which {format_bytes(size - beside)} lie in pages that the plan has "
            "free by then, and are handed over without a copy."
        )
    return Explanation(
        model=measurement.scenario.model.name,
        mode=explained.mode,
        inputs={name: tuple(array.shape) for name, array in measurement.fed.inputs.items()},
        peak=explained.peak,
        load_peak=explained.load_peak,
        run_peak=explained.run_peak,
        parts=explained.parts,
        findings=findings_of(explained, rules),
        notes=tuple(notes),
        measured=f"{measurement.command}, {measurement.date}",
        environment=measurement.environment,
    )


def with_findings(document: Document) -> Document:
    """A measurement's document with what its readers should do next, as far as that is known in a moment."""
    try:
        measurement = Measurement.from_document(document)
        if not measurement.verdict.ok or measurement.device:
            return document
        explained = Explained.of(measurement, quick=True)
        found = findings_of(explained, QUICK)
    except OnnxmemError:
        return document
    return {**document, "findings": [finding.document() for finding in found]}


def read_measurement(path: Path) -> Measurement:
    """The measurement that `measure --json` or `-o` wrote."""
    try:
        document: Any = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"'{path}' is not a JSON file", hint="onnxmem measure MODEL -o RESULT.json") from error
    try:
        return Measurement.from_document(document)
    except OnnxmemError as error:
        hint = error.hint or "onnxmem measure MODEL -o RESULT.json"
        raise UsageError(f"'{path}' is no measurement: {error}", hint=hint) from error
