"""A web server whose workers share one copy of the weights.

    onnxmem pack model.onnx -o model.pack

    PACKAGE=model.pack gunicorn --workers 4 examples.serving:wsgi      # workers are forked
    PACKAGE=model.pack uvicorn --workers 4 examples.serving:asgi       # workers are spawned

Each request runs the model once on ones and answers which process did it.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import onnxmem


@functools.cache
def session() -> onnxmem.InferenceSession:
    """The worker's session, made when it is first needed.

    Never before a fork: a session has threads, which do not survive one. The weights are shared all the same, because
    every worker maps the same file.
    """
    return onnxmem.InferenceSession(os.environ["PACKAGE"])


def answer() -> bytes:
    """One run of the model."""
    model = session()
    wanted = {value.name: [d if isinstance(d, int) else 1 for d in value.shape] for value in model.get_inputs()}
    outputs = model.run(None, {name: np.ones(shape, np.float32) for name, shape in wanted.items()})
    return json.dumps({"pid": os.getpid(), "mode": model.loaded_mode, "sum": float(outputs[0].sum())}).encode()


def wsgi(_: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """For gunicorn and other servers that call an application."""
    start_response("200 OK", [("Content-Type", "application/json")])
    return [answer()]


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """For uvicorn and other servers that await one."""
    if scope["type"] == "lifespan":
        await receive()
        session()  # load before the first request comes
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": answer()})
