"""What a process and the child that holds its session say to each other: small JSON headers, with file descriptors
beside them. Tensors never travel here.

On the control channel first Load, answered by Loaded or Failed, and then OpenLane for each caller, or Trim, answered by
Trimmed; on the lanes Call, answered by Returned or Failed.
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from onnxmem.process.messages import Message, decode, encode

_HEAD = struct.Struct("<IB")  # length of the message, number of descriptors
_MOST_DESCRIPTORS = 8
# The other side may have died, and a program that has SIGPIPE as the system does would die of writing to it.
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)


META = ("producer_name", "graph_name", "domain", "description", "version", "custom_metadata_map")
"""What a model says about itself."""


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


class Trim(Message):
    """Give freed memory back to the system."""


class Trimmed(Message):
    """It was given back."""


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


KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (Load, Loaded, OpenLane, Trim, Trimmed, Call, Returned, Failed)
}


class Gone(Exception):
    """The other side has closed its end, or has died."""


class Late(Gone):
    """The other side does not answer in the time that it has."""


class Channel:
    """One end of a pair; one thread uses it at a time."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        """Two ends that talk to each other. Neither is inherited by a process that is started later."""
        here, there = socket.socketpair()
        return cls(here), cls(there)

    @classmethod
    def adopt(cls, descriptor: int) -> Channel:
        """The end that another process has handed over."""
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        """The descriptor, to hand over or to wait for."""
        return self._end.fileno()

    def limit(self, seconds: float | None) -> None:
        """The other side has so long to answer; None: as long as it likes."""
        self._end.settimeout(seconds)

    def send(self, message: Message, descriptors: Sequence[int] = ()) -> None:
        """Send one message; the descriptors stay open here."""
        body = encode(message)
        try:
            content = _HEAD.pack(len(body), len(descriptors)) + body
            # The descriptors ride on the first byte; a short message is one system call.
            # As `socket.send_fds`, which leaves out its flags.
            rights = struct.pack(f"{len(descriptors)}i", *descriptors)
            sent = self._end.sendmsg([content], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)], _NO_SIGNAL)
            if sent < len(content):
                self._end.sendall(memoryview(content)[sent:], _NO_SIGNAL)
        except OSError as error:
            raise (Late if isinstance(error, TimeoutError) else Gone) from error

    def receive(self) -> tuple[Any, list[int]]:
        """Wait for one message and the descriptors that came with it; -1 for each that this process has no room for."""
        descriptors: list[int] = []
        try:
            head = b""
            while len(head) < _HEAD.size:
                piece, arrived, _, _ = socket.recv_fds(self._end, _HEAD.size - len(head), _MOST_DESCRIPTORS)
                descriptors += arrived
                if not piece:
                    raise Gone
                head += piece
            length, count = _HEAD.unpack(head)
            message = decode(self._exactly(length), KINDS)
        except (OSError, Gone) as error:
            close_all(descriptors)
            raise (Late if isinstance(error, TimeoutError) else Gone) from error
        # At the limit of open files the system drops descriptors, and says nothing.
        return message, descriptors + [-1] * (count - len(descriptors))

    def close(self, *, wake: bool = True) -> None:
        """Close this end. `wake` ends the conversation for everyone, also for copies of this end in other processes."""
        if wake:
            # Closing alone would not wake a thread of this process that is waiting in receive().
            with suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)
        self._end.close()

    def _exactly(self, count: int) -> bytearray:
        content = bytearray(count)
        view, got = memoryview(content), 0
        while got < count:
            more = self._end.recv_into(view[got:])
            if not more:
                raise Gone
            got += more
        return content


def close_all(descriptors: Sequence[int]) -> None:
    """Close descriptors that nobody took."""
    for descriptor in descriptors:
        if descriptor >= 0:
            os.close(descriptor)
