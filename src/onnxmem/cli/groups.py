"""What all verbs have in common: options that come in groups, and a time limit.

A dataclass is one parameter of a verb, and each of its fields an option.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from typing import Any

from onnxmem.cli import options
from onnxmem.cli.limit import interruptible

# Verbs that watch the limit themselves have something to show when it is over: they get the time to do so.
_GRACE = 3.0


def spread(verb: Callable[..., None]) -> Callable[..., None]:
    """The verb as Typer can read it: fields of dataclasses among its parameters are parameters of their own.

    Its `time_limit` holds for all it does; a verb that has none gets one.
    """
    groups: dict[str, Any] = {}
    parameters: list[inspect.Parameter] = []
    hints = typing.get_type_hints(verb, include_extras=True)
    for name, parameter in inspect.signature(verb).parameters.items():
        kind = hints[name]
        if not is_dataclass(kind):
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=kind))
            continue
        groups[name] = kind
        own = typing.get_type_hints(kind, include_extras=True)
        parameters += [
            inspect.Parameter(each.name, parameter.KEYWORD_ONLY, default=each.default, annotation=own[each.name])
            for each in fields(kind)
        ]

    unaware = "time_limit" not in hints
    if unaware:
        limit = inspect.Parameter(
            "time_limit", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=options.NoTimeLimit
        )
        parameters.append(limit)

    @functools.wraps(verb)
    def run(**given: Any) -> None:
        seconds = given.pop("time_limit") if unaware else given["time_limit"]
        for name, kind in groups.items():
            given[name] = kind(**{each.name: given.pop(each.name) for each in fields(kind)})
        with interruptible(seconds, grace=0.0 if unaware else _GRACE):
            verb(**given)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
