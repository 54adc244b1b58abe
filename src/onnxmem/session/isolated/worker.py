"""The child of an IsolatedSession: it loads the model, answers calls, and never outlives its parent.

The main thread keeps the control channel, on which the parent opens lanes; each lane is a channel with a thread of its
own, so that calls from several threads run at the same time, as they would in an ordinary session.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.session.isolated.channel import Channel, Gone
from onnxmem.session.isolated.slots import Slot
from onnxmem.session.isolated.wire import Parcel, unpack
from onnxmem.session.trim import trim


def main(descriptor: int) -> None:
    """Serve until the parent closes the control channel; it was started so that it ends if the parent dies."""
    with suppress(OSError):
        os.dup2(2, 1)  # what ONNX Runtime prints is not the parent's result
    control = Channel.adopt(descriptor)
    try:
        request, _ = control.receive()
        try:
            session = _load(request)
            trim()  # loading leaves temporary copies of weights behind, freed but still resident
            control.send({"session": _describe(session)})
        except Exception as error:
            control.send({"error": _failure(error)})
            return
        while True:
            _, (lane,) = control.receive()
            threading.Thread(target=_serve, args=(session, Channel.adopt(lane)), daemon=True).start()
    except Gone:
        pass
    finally:
        # At once: nothing here needs tidying, and destroying a large session takes time the parent would wait.
        os._exit(0)


def _load(request: dict[str, Any]) -> Any:
    try:
        import onnxruntime as ort  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = ort.SessionOptions()
    _apply(options, request["options"], options.add_session_config_entry, "session")
    providers = request["providers"]
    if providers is not None:
        providers = [tuple(entry) if isinstance(entry, list) else entry for entry in providers]
    path, mode = request["path"], request["mode"]
    if mode == "stock" and not os.path.isdir(path):  # noqa: PTH112
        return ort.InferenceSession(path, options, providers=providers)
    # Only now: it would count as memory of all others.
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    return InferenceSession(path, options, providers, mode=mode)


def _apply(target: Any, settings: Mapping[str, Any], add_entry: Any, kind: str) -> None:
    """Set attributes by their names, and configuration entries, whose keys all have a dot."""
    known = [name for name in dir(type(target)) if isinstance(getattr(type(target), name), property)]
    for name, value in settings.items():
        if "." in name:
            add_entry(name, str(value))
            continue
        if name not in known:
            raise UsageError(f"there is no {kind} option '{name}'", hint=f"known: {', '.join(known)}")
        members = getattr(type(getattr(target, name)), "__members__", {})
        if members and value not in members:
            raise UsageError(f"'{name}' cannot be '{value}'", hint=f"known: {', '.join(members)}")
        try:
            setattr(target, name, members[value] if members else value)
        except TypeError as error:
            raise UsageError(f"{kind} option '{name}' cannot be {value!r}") from error


def _describe(session: Any) -> dict[str, Any]:
    meta = session.get_modelmeta()
    return {
        "inputs": [_argument(value) for value in session.get_inputs()],
        "outputs": [_argument(value) for value in session.get_outputs()],
        "overridable": [_argument(value) for value in session.get_overridable_initializers()],
        "mode": getattr(session, "loaded_mode", "stock"),
        "providers": list(session.get_providers()),
        "provider_options": session.get_provider_options(),
        "meta": {
            "producer_name": meta.producer_name,
            "graph_name": meta.graph_name,
            "domain": meta.domain,
            "description": meta.description,
            "version": meta.version,
            "custom_metadata_map": dict(meta.custom_metadata_map),
        },
    }


def _argument(value: Any) -> list[Any]:
    return [value.name, value.type, list(value.shape)]


class _Lane:
    """One caller's channel, with the memory in which its inputs arrive and its outputs leave."""

    def __init__(self, session: Any, channel: Channel) -> None:
        self.session, self.channel = session, channel
        self.incoming: Slot | None = None
        self.outgoing: dict[int, Slot] = {}
        self.made = 0

    def answer(self) -> None:
        request, descriptors = self.channel.receive()
        if descriptors:
            self.incoming = Slot.adopt(0, request["size"], descriptors[0])
        for number in request["forget"]:
            self.outgoing.pop(number, None)
        try:
            parcel, reply = Parcel(), []
            for name, value in zip(request["fetch"], self.run(request), strict=True):
                reply.append(parcel.add(value, name))
            slot, new = self.slot(parcel.size, request["free"])
            parcel.write(slot.view())
        except Exception as error:
            self.channel.send({"error": _failure(error)})
            return
        message = {"outputs": reply, "slot": slot.number, "size": slot.size, "used": parcel.size}
        self.channel.send(message, [slot.descriptor] if new else [])
        slot.handed_over()

    def run(self, request: dict[str, Any]) -> list[Any]:
        import onnxruntime as ort  # noqa: PLC0415

        source = self.incoming.view() if self.incoming else Slot.new(0, 0).view()
        feeds = {name: unpack(description, source) for name, description in request["feeds"].items()}
        options = None
        if request["options"]:
            options = ort.RunOptions()
            _apply(options, request["options"], options.add_run_config_entry, "run")
        results: list[Any] = self.session.run(request["fetch"], feeds, options)
        return results

    def slot(self, needed: int, free: list[int]) -> tuple[Slot, bool]:
        """The smallest slot that the parent has done with and that suits, or a new one."""
        suited = [self.outgoing[number] for number in free if self.outgoing[number].fits(needed)]
        if suited:
            return min(suited, key=lambda slot: slot.size), False
        self.made += 1
        slot = self.outgoing[self.made] = Slot.new(self.made, needed)
        return slot, True


def _serve(session: Any, channel: Channel) -> None:
    lane = _Lane(session, channel)
    with suppress(Gone):
        while True:
            lane.answer()
    # The caller gave up on this lane, perhaps in the middle of a call; the others go on.
    channel.close()


def _failure(error: Exception) -> dict[str, Any]:
    """An error as the parent will raise it: wrong requests apart from models that fail."""
    if isinstance(error, OnnxmemError):
        return {"usage": isinstance(error, UsageError), "message": str(error), "hint": error.hint}
    usage = type(error).__name__ in ("InvalidArgument", "NoSuchFile", "ValueError", "TypeError")
    return {"usage": usage, "message": said(error), "hint": ""}


def said(error: Exception) -> str:
    """What an error says, in one line and without ONNX Runtime's codes."""
    message = " ".join(str(error).split())
    return re.sub(r"^\[ONNXRuntimeError\] : (\d+ : \w+ : )?", "", message) or type(error).__name__


def failure(reply: dict[str, Any]) -> OnnxmemError:
    """The error that a reply carries."""
    kind = UsageError if reply["usage"] else ModelError
    return kind(reply["message"], hint=reply["hint"])
