"""What did it take before? From a saved result, or from a history: as entries, of which one is about the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onnxmem.checking.case import Case
from onnxmem.checking.checked import Baseline
from onnxmem.checking.checking import Checking
from onnxmem.errors import OnnxmemError, UsageError
from onnxmem.history.entry import Entry, Key, key_of, machine
from onnxmem.history.figures_of import measured
from onnxmem.measurement.measurement import Measurement
from onnxmem.unknown import Unknown

_HINT = "make one with onnxmem check -o FILE.json, or onnxmem measure -o FILE.json"


def read_baseline(path: Path) -> tuple[Entry, ...]:
    """The results in a file that `check` or `measure` wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read '{path}': {error.strerror}", hint=_HINT) from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"'{path}' is no baseline: it is not a JSON file", hint=_HINT) from error
    schema = document.get("schema") if isinstance(document, Mapping) else None
    try:
        if schema == Measurement.SCHEMA:
            return (_of_measurement(document),)
        if schema == Checking.SCHEMA:
            return Checking.from_document(document).entries()
    except (OnnxmemError, LookupError, TypeError, ValueError) as error:
        raise UsageError(f"'{path}' is no baseline: {error}", hint=_HINT) from error
    raise UsageError(f"'{path}' is no baseline: it is not a result of check or measure", hint=_HINT)


def _of_measurement(document: Mapping[str, Any]) -> Entry:
    measurement = Measurement.from_document(document)
    shapes = {name: tuple(array.shape) for name, array in measurement.fed.inputs.items()}
    environment = measurement.environment
    return Entry(
        key=key_of(measurement.scenario, shapes, "measurement"),
        figures=measured(measurement),
        date=measurement.date,
        sha256="",
        onnxmem=environment.onnxmem,
        onnxruntime=environment.onnxruntime,
        machine=machine(environment),
    )


def find_entry(entries: Sequence[Entry], key: Key, path: Path) -> Entry:
    """The one that is about the same; an error that says what they are about instead."""
    same = next((entry for entry in entries if entry.key == key), None)
    if same is not None:
        return same
    if not entries:
        raise UsageError(f"'{path}' is no baseline for {key.label}: it has no results", hint=_HINT)
    nearest = min((key.differences(entry.key) for entry in entries), key=len)
    raise UsageError(
        f"'{path}' is no baseline for {key.label}: it is a result {' and '.join(nearest)}",
        hint="compare with a result of the same model, mode, shapes and threads",
    )


def baseline_of(entry: Entry, case: Case, path: Path) -> Baseline:
    """What a case is compared with; an error if the entry does not have the figure."""
    size = case.about.of(entry.figures)
    if isinstance(size, Unknown):
        raise UsageError(f"'{path}' is no baseline: its {case.about.label} is not known: {size.reason}", hint=_HINT)
    return Baseline(
        size=size,
        allowed=case.tolerance.above(size),
        origin=path.name,
        date=entry.date,
        commit=entry.commit,
    )
