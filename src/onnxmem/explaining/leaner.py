"""What another mode does without, and what is left of that saving."""

from __future__ import annotations

from onnxmem.explaining.explained import Explained
from onnxmem.explaining.finding import Finding

RUN_WASTE = ("pattern", "reuse", "arena slack")
_PLANNER = 7 << 19
"""What a planned session takes itself, measured: its library, the planner, and writing down a run."""
_PAYS = 2
"""Planning is worth it from so many times that."""


def leaner_mode(explained: Explained) -> str:
    """For somebody who runs stock: planned where runs waste more than planning costs, otherwise tuned."""
    wasted = sum(map(explained.part, RUN_WASTE))
    return "planned" if wasted >= _PAYS * _PLANNER else "tuned"


def saved_in_mode(
    explained: Explained, mode: str, taken: int, *, rule: str, what: str, evidence: str, advice: str = ""
) -> Finding:
    """What is found is what runs take and this mode does without."""
    return Finding(
        rule=rule,
        what=what,
        evidence=evidence,
        advice=advice or f"Run it {mode}",
        saving=_net_saving(explained, taken, mode),
        when=once_loaded(explained, _wasted(explained)),
        command=explained.in_mode(mode),
    )


def planning_costs(explained: Explained) -> int:
    """What has to be taken off the saving of something that runs planned, where nothing else has paid for that."""
    return 0 if explained.mode == "planned" else _PLANNER


def once_loaded(explained: Explained, saving: int) -> str:
    """On what savings of runs depend: where loading then is the peak, they are there only after it."""
    return "once it is loaded" if explained.load_peak > explained.run_peak - saving else ""


def _net_saving(explained: Explained, saving: int, mode: str) -> int:
    """What is left of a saving: planned runs cost something, which all that they save pays for in proportion."""
    wasted = _wasted(explained)
    if mode != "planned" or not wasted:
        return saving
    return max(0, saving - _PLANNER * saving // wasted)


def _wasted(explained: Explained) -> int:
    kept = explained.part("kept by the heap") if explained.mode == "stock" else 0
    return kept + sum(map(explained.part, RUN_WASTE))
