"""What is to hold: one model, run in one way, and the most that it may take."""

from __future__ import annotations

from dataclasses import dataclass, field

from onnxmem.documents import Record, stored
from onnxmem.errors import UsageError
from onnxmem.history.entry import Key, key_of
from onnxmem.history.figures import Figure, find_figure
from onnxmem.history.tolerance import USUAL, Tolerance
from onnxmem.measurement.feeds import make_feeds
from onnxmem.measurement.scenario import Scenario
from onnxmem.measurement.signature import read_signature
from onnxmem.session.modes import check_mode
from onnxmem.session.stored_files import content_hash

WAYS = ("measurement", "estimate")
"""How the figure is found: by running the model, or by a prediction."""


@dataclass(frozen=True, kw_only=True)
class Case(Record):
    """One line of a table of budgets."""

    scenario: Scenario
    budget: int | None = stored("budget_bytes", default=None)
    """None if it only must not grow."""
    figure: str = "peak"
    """What the budget is about: one of FIGURES."""
    by: str = "measurement"
    repeat: int = 1
    """Measured in so many processes; the highest counts."""
    tolerance: Tolerance = field(default_factory=lambda: Tolerance.parse(USUAL))
    """How much more than its baseline it may take."""
    name: str = ""
    """What its owner calls it."""
    place: str = ""
    """Where it is written, if it is in a table."""

    def __post_init__(self) -> None:
        find_figure(self.figure)
        if self.by not in WAYS:
            raise UsageError(f"there is no check by '{self.by}'", hint=f"known: {', '.join(WAYS)}")
        if self.by == "estimate" and (self.scenario.options or self.scenario.config):
            raise UsageError("what session options change is not estimated", hint="measure it: --by measurement")
        if self.repeat < 1:
            raise UsageError(f"repeat must be at least 1; it is {self.repeat}")
        if self.budget is not None and self.budget < 1:
            raise UsageError(f"a budget of {self.budget} bytes leaves nothing", hint="for example 300MiB")

    @property
    def about(self) -> Figure:
        """The figure itself."""
        return find_figure(self.figure)

    @property
    def title(self) -> str:
        """What to call it: its name, or the model's."""
        return self.name or self.scenario.model.name


@dataclass(frozen=True)
class Prepared:
    """A case that can be checked: its model was looked at, but not run."""

    case: Case
    key: Key
    sha256: str


def prepare(case: Case) -> Prepared:
    """Look at a case before anything runs: whatever is wrong with the request is an error here."""
    scenario = case.scenario
    signature = read_signature(scenario.model)
    check_mode(scenario.mode, scenario.model)
    inputs = make_feeds(signature, scenario).described().inputs
    key = key_of(scenario, {name: array.shape for name, array in inputs.items()}, case.by)
    return Prepared(case, key, content_hash(signature.files))
