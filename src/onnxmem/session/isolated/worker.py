"""The child of an IsolatedSession: it loads the model, answers calls, and never outlives its parent.

The main thread keeps the control channel, on which the parent opens lanes; each lane is a channel with a thread of its
own, so that calls from several threads run at the same time, as they would in an ordinary session.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from onnxmem.errors import ModelError, OnnxmemError, UsageError
from onnxmem.session.isolated.channel import (
    META,
    Call,
    Channel,
    Failed,
    Gone,
    Load,
    Loaded,
    Returned,
    Trim,
    Trimmed,
)
from onnxmem.session.isolated.wire import Parcel, Slot, unpack
from onnxmem.session.options import set_attributes
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
            control.send(_describe(session))
        except Exception as error:
            control.send(_failure(error))
            return
        while True:
            request, lanes = control.receive()
            if isinstance(request, Trim):
                trim()
                control.send(Trimmed())
                continue
            (lane,) = lanes
            threading.Thread(target=_serve, args=(session, Channel.adopt(lane)), daemon=True).start()
    except Gone:
        pass
    finally:
        # At once: nothing here needs tidying, and destroying a large session takes time the parent would wait.
        os._exit(0)


def _load(request: Load) -> Any:
    try:
        import onnxruntime as ort  # noqa: PLC0415
    except ImportError as error:
        raise UsageError("onnxruntime is not installed", hint="pip install onnxruntime") from error
    options = ort.SessionOptions()
    _apply(options, request.options, options.add_session_config_entry, "session")
    path, mode, providers = request.path, request.mode, request.providers
    if providers is not None:
        providers = [tuple(entry) if isinstance(entry, list) else entry for entry in providers]
    if mode == "stock" and not os.path.isdir(path):  # noqa: PTH112
        return ort.InferenceSession(path, options, providers=providers)
    # Only now: it would count as memory of all others.
    from onnxmem.session.session import InferenceSession  # noqa: PLC0415

    return InferenceSession(path, options, providers, mode=mode)


def _apply(target: Any, settings: Mapping[str, Any], add_entry: Any, kind: str) -> None:
    """Set attributes by their names, and configuration entries, whose keys all have a dot."""
    set_attributes(target, {name: value for name, value in settings.items() if "." not in name}, kind)
    for name, value in settings.items():
        if "." in name:
            add_entry(name, str(value))


def _describe(session: Any) -> Loaded:
    meta = session.get_modelmeta()
    return Loaded(
        inputs=[_argument(value) for value in session.get_inputs()],
        outputs=[_argument(value) for value in session.get_outputs()],
        overridable=[_argument(value) for value in session.get_overridable_initializers()],
        mode=getattr(session, "loaded_mode", "stock"),
        providers=list(session.get_providers()),
        provider_options=session.get_provider_options(),
        meta={name: getattr(meta, name) for name in META},
    )


def _argument(value: Any) -> tuple[str, str, list[int | str | None]]:
    return value.name, value.type, list(value.shape)


class _Lane:
    """One caller's channel, with the memory in which its inputs arrive and its outputs leave."""

    def __init__(self, session: Any, channel: Channel) -> None:
        self.session, self.channel = session, channel
        self.incoming: Slot | None = None
        self.outgoing: dict[int, Slot] = {}
        self.slots = 0

    def answer(self) -> None:
        request, descriptors = self.channel.receive()
        for number in request.forget:
            self.outgoing.pop(number, None)
        try:
            if descriptors:
                self.incoming = Slot.adopt(0, request.size, descriptors[0])
            parcel, reply = Parcel(), []
            for name, value in zip(request.fetch, self.run(request), strict=True):
                reply.append(parcel.add(value, name))
            slot, new = self.slot(parcel.size, request.free)
            parcel.write(slot.view())
        except Exception as error:
            self.channel.send(_failure(error))
            return
        message = Returned(reply, slot.number, slot.size, parcel.size)
        self.channel.send(message, [slot.descriptor] if new else [])
        slot.handed_over()

    def run(self, request: Call) -> list[Any]:
        import onnxruntime as ort  # noqa: PLC0415

        source = self.incoming.view() if self.incoming else Slot.new(0, 0).view()
        feeds = {name: unpack(description, source) for name, description in request.feeds.items()}
        options = None
        if request.options:
            options = ort.RunOptions()
            _apply(options, request.options, options.add_run_config_entry, "run")
        results: list[Any] = self.session.run(request.fetch, feeds, options)
        return results

    def slot(self, needed: int, free: Sequence[int]) -> tuple[Slot, bool]:
        """The smallest slot that the parent has done with and that suits, or a new one."""
        suited = [self.outgoing[number] for number in free if self.outgoing[number].fits(needed)]
        if suited:
            return min(suited, key=lambda slot: slot.size), False
        self.slots += 1
        slot = self.outgoing[self.slots] = Slot.new(self.slots, needed)
        return slot, True


def _serve(session: Any, channel: Channel) -> None:
    lane = _Lane(session, channel)
    with suppress(Gone):
        while True:
            lane.answer()
    # The caller gave up on this lane, perhaps in the middle of a call; the others go on.
    channel.close()


def _failure(error: Exception) -> Failed:
    """An error as the parent will raise it: wrong requests apart from models that fail."""
    if isinstance(error, OnnxmemError):
        return Failed(usage=isinstance(error, UsageError), message=str(error), hint=error.hint)
    usage = type(error).__name__ in ("InvalidArgument", "NoSuchFile", "ValueError", "TypeError")
    return Failed(usage=usage, message=error_text(error), hint="")


def error_text(error: Exception) -> str:
    """What an error says, in one line and without ONNX Runtime's codes."""
    message = " ".join(str(error).split())
    return re.sub(r"^\[ONNXRuntimeError\] : (\d+ : \w+ : )?", "", message) or type(error).__name__


def failure(reply: Failed) -> OnnxmemError:
    """The error that a reply carries."""
    kind = UsageError if reply.usage else ModelError
    return kind(reply.message, hint=reply.hint)
