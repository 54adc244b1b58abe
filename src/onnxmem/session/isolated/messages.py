"""What a process and the child that holds its session say to each other. Tensors travel beside, in shared memory.

On the control channel first Load, answered by Loaded or Failed, and then OpenLane for each caller; on the lanes Call,
answered by Returned or Failed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnxmem.process.messages import Message


class Load(Message):
    """The session to be made."""

    path: str
    mode: str
    options: Mapping[str, Any]
    providers: Sequence[Any] | None


class Loaded(Message):
    """What the session says about itself; arguments are name, type and shape."""

    inputs: Sequence[tuple[str, str, Sequence[int | str | None]]]
    outputs: Sequence[tuple[str, str, Sequence[int | str | None]]]
    overridable: Sequence[tuple[str, str, Sequence[int | str | None]]]
    mode: str
    providers: Sequence[str]
    provider_options: Mapping[str, Any]
    meta: Mapping[str, Any]


class OpenLane(Message):
    """A channel for one more caller comes with this."""


class Call(Message):
    """One run: where the inputs lie, and which slots for outputs are free again, or never needed any more."""

    fetch: Sequence[str]
    feeds: Mapping[str, Any]
    options: Mapping[str, Any]
    size: int
    free: Sequence[int]
    forget: Sequence[int]


class Returned(Message):
    """Where the outputs of a run lie."""

    outputs: Sequence[Any]
    slot: int
    size: int
    used: int


class Failed(Message):
    """Why there are none."""

    usage: bool
    """Whether the request was wrong, and not the model."""
    message: str
    hint: str


KINDS: dict[str, type[Message]] = {kind.__name__: kind for kind in (Load, Loaded, OpenLane, Call, Returned, Failed)}
