"""How should a session plan its runs? The keywords of `onnxmem.InferenceSession` that are for plans, checked once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from onnxmem.errors import UsageError

if TYPE_CHECKING:
    from onnxmem.session.planned.arena import Arena


@dataclass(frozen=True, kw_only=True)
class PlanningOptions:
    """How a session plans its runs; None stands for the default."""

    arena: Arena | None = None
    """Memory shared with other sessions; by default one of its own."""
    plans: Iterable[Mapping[str, Any]] | None = None
    """Plans that `export_plans` wrote; by default those of the package, if there is one."""
    max_plans: int | None = None
    """How many input shapes are remembered: 16."""
    plan_seconds: float | None = None
    """How long better placements are sought in the background: 5."""
    trim_after: float | None = None
    """After so many seconds without a run the arena's pages go back to the system; by default never."""
    huge_pages: bool | None = None
    """Whether the system is asked for large pages."""
    sharing: bool | None = None
    """Whether operators may write over an input that dies, where their kernels allow it; by default yes."""
    budget: int | str | None = None
    """The most that a call of `run` may take, its outputs included, as in "64MiB": larger batches are run in parts."""
    exact: bool | None = None
    """Whether a batch is run in parts, or a model in tiles, only where that gives the same bits, as it does by default.
    Without, parts may be rounded otherwise, which those on a GPU are."""
    keep_plans: bool | None = None
    """Whether plans are kept in the user's cache folder, for later processes; by default yes, unless the environment
    variable ONNXMEM_KEEP_PLANS is 0."""
    debug: bool | None = None
    """Whether freed memory is overwritten and the ends of buffers are watched."""

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> PlanningOptions:
        """Those of a function's arguments that are called like an option."""
        return cls(**{each.name: arguments[each.name] for each in fields(cls)})

    def __post_init__(self) -> None:
        if self.plans is not None:
            object.__setattr__(self, "plans", tuple(self.plans))
        if self.max_plans is not None and not (isinstance(self.max_plans, int) and self.max_plans >= 1):
            raise UsageError(f"a session remembers at least one plan: max_plans cannot be {self.max_plans!r}")
        if self.budget is not None:
            object.__setattr__(self, "budget", checked_budget(self.budget))
        check_seconds("plan_seconds", self.plan_seconds)
        check_seconds("trim_after", self.trim_after)
        if self.arena is None:
            return
        from onnxmem.session.planned.arena import Arena  # noqa: PLC0415  unplanned sessions do without

        if not isinstance(self.arena, Arena):
            raise UsageError(f"arena must be an onnxmem.Arena, not {self.arena!r}")
        if self.trim_after is not None or self.huge_pages:
            raise UsageError("a shared arena has its own trim_after and huge_pages", hint="give them to the Arena")

    @property
    def keeps(self) -> bool:
        """Whether plans come from the cache folder, and go there."""
        if self.keep_plans is None:
            return self.plans is None and os.environ.get("ONNXMEM_KEEP_PLANS") != "0"
        return self.plans is None and self.keep_plans

    @property
    def given(self) -> list[str]:
        """The options that are not left to their defaults."""
        return [name for name, value in vars(self).items() if value is not None]


def check_seconds(name: str, value: Any) -> None:
    """Raise UsageError unless this is a number of seconds, or None."""
    if value is not None and not (isinstance(value, int | float) and value >= 0):
        raise UsageError(f"{name} must be a number of seconds, not {value!r}")


def checked_budget(budget: Any) -> int:
    """A number of bytes, or a text that says one, as a number; UsageError if it is neither."""
    from onnxmem.units import parse_bytes  # noqa: PLC0415  few sessions have a budget

    number = parse_bytes(budget) if isinstance(budget, str) else budget
    if not isinstance(number, int) or isinstance(number, bool) or number <= 0:
        raise UsageError(f"a budget is a number of bytes, or a text such as '64MiB', not {budget!r}")
    return number
