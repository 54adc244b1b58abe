"""What kernels answered to earlier processes, in a file: the next one need not ask."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress

from onnxmem.session.planned import cache

_FORMAT = 2


def read_answers(promised: object) -> dict[str, Sequence[int]]:
    """What earlier processes found, which asked about what is `promised`; nothing if there is no file."""
    with suppress(ValueError, TypeError, AttributeError):
        answers = json.loads(cache.read(_name(promised)))
        return {str(key): [int(position) for position in positions] for key, positions in answers.items()}
    return {}


def write_answers(promised: object, found: Mapping[str, Sequence[int]]) -> None:
    """Add to it. Should two processes do so at once, what one of them found is asked again."""
    answers = {**read_answers(promised), **{key: list(positions) for key, positions in found.items()}}
    cache.write(_name(promised), json.dumps(answers).encode())


def _name(promised: object) -> str:
    """The kernels and the processor they run on are in it: elsewhere, others may be right."""
    return f"sharing-{cache.digest(_FORMAT, cache.machine(), promised)}.json"
