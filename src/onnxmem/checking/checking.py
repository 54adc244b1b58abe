"""The result of checking: the answer on every case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from onnxmem.checking.checked import EXCEEDED, FAILED, GROWN, OK, Checked
from onnxmem.history.entry import Entry, machine
from onnxmem.result import Result


@dataclass(frozen=True, kw_only=True)
class Checking(Result):
    """Whether models keep within their budgets, and have not grown."""

    SCHEMA = "onnxmem.check/1"

    checks: tuple[Checked, ...]
    commit: str | None = None
    """Of the repository it was made in."""

    @property
    def ok(self) -> bool:
        """Whether all of them are as they should be."""
        return all(each.verdict == OK for each in self.checks)

    @property
    def fits(self) -> bool | None:
        """Whether all are within their budgets; None if that is not known of one."""
        return (
            False
            if any(each.fits is False for each in self.checks)
            else (None if any(each.fits is None for each in self.checks) else True)
        )

    @property
    def exit_code(self) -> int:
        """0 all well, 1 a budget exceeded or a growth, 3 one could not be checked."""
        verdicts = {each.verdict for each in self.checks}
        return 3 if FAILED in verdicts else 1 if verdicts & {EXCEEDED, GROWN} else 0

    def __repr__(self) -> str:
        if len(self.checks) == 1:
            (only,) = self.checks
            return f"<Checking of {only.title[:60]}: {only.verdict}>"
        wrong = sum(each.verdict != OK for each in self.checks)
        return f"<Checking of {len(self.checks)} cases: {f'{wrong} not as they should be' if wrong else 'all well'}>"

    def entry(self, checked: Checked) -> Entry:
        """One of its answers as an entry of a history."""
        environment = self.environment
        return checked.entry(
            date=self.date,
            commit=self.commit,
            onnxmem=environment.onnxmem,
            onnxruntime=environment.onnxruntime,
            machine=machine(environment),
        )

    def entries(self) -> tuple[Entry, ...]:
        """All answers of cases that ran."""
        return tuple(self.entry(each) for each in self.checks if not each.failure)

    def derived(self) -> Mapping[str, Any]:
        """The answer first; the budget and the model, if there is only one case."""
        only = self.checks[0] if len(self.checks) == 1 else None
        return {
            "model": only.key.model if only else None,
            "budget_bytes": only.case.budget if only else None,
            "fits": self.fits,
            "ok": self.ok,
        }
