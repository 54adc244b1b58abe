"""A free dimension: what is the largest size that will come, and what does it take then?"""

from __future__ import annotations

from onnxmem.errors import OnnxmemError
from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding
from onnxmem.prediction.predict import Subject
from onnxmem.schedule.scheduled import Question
from onnxmem.units import format_bytes

_TRIED = 2
_GROWS = 1.5
"""Times what runs add now."""


def find(explained: Explained) -> Finding | None:
    """The dimension that grows most when it is doubled, and what planned runs would save then."""
    if explained.subject is None or explained.mode not in ("stock", "tuned"):
        return None
    now = explained.forecast(explained.mode)
    found = [each for name in list(_free(explained))[:_TRIED] if (each := _doubled(explained, name))]
    if now is None or not found:
        return None
    growth, name, number, saving = max(found)
    if growth < _GROWS * now.run_growth:
        return None
    return Finding(
        rule="dynamic_growth",
        what=f"growth with {name}",
        evidence=f"At {name} = {number} runs take {format_bytes(now.run_growth)}; at {2 * number} they will take "
        f"{format_bytes(growth)}.",
        advice=f"Run it planned, or keep {name} small",
        saving=saving,
        when=f"at {name} = {2 * number}",
        command=explained.in_mode("planned"),
    )


def _free(explained: Explained) -> dict[str, int]:
    dims = explained.measurement.fed.dims
    return {**dims.given, **dims.assumed}


def _doubled(explained: Explained, name: str) -> tuple[int, str, int, int] | None:
    """What runs add at twice the size, and how much less planned ones."""
    assert explained.subject is not None
    dims = _free(explained)
    try:
        subject = Subject.of(
            explained.subject.model, Question(dims={**dims, name: 2 * dims[name]}), explained.scenario.threads
        )
        forecasts = [explained.predicted(subject, mode) for mode in (explained.mode, "planned")]
    except OnnxmemError:  # not all models take twice of everything
        return None
    growth, planned = (forecast.run_growth for forecast in forecasts)
    return growth, name, dims[name], growth - planned
