"""What other threads held or were doing when the process forked: in the child they do not exist, so it begins anew."""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import Protocol


class Renewed(Protocol):
    """Something with locks, or with threads."""

    def begin_anew(self) -> None:
        """As at first, with locks that nobody holds."""


_ALL: weakref.WeakSet[Renewed] = weakref.WeakSet()


def renew_in_children(owner: Renewed) -> None:
    """From now on, for as long as it is there, `owner` begins anew in every forked child."""
    _ALL.add(owner)


def _forked() -> None:
    for owner in _ALL:
        owner.begin_anew()


with suppress(AttributeError):  # systems without fork
    os.register_at_fork(after_in_child=_forked)
