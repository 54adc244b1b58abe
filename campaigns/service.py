"""A small service to put under load: two models that stay, one that comes and goes, and everything that goes wrong.

    GET /MODEL?shape=1x3x32x32&seed=7    the outputs' bytes; the input is made of the seed
    GET /release                         one more session, loaded and released by force
    GET /fork                            a child of the worker, while others run

It runs under gunicorn (`wsgi`: workers are forked, and import all this then) and under uvicorn (`asgi`: they are
spawned), on planned sessions of packages or on stock ones. `SERVICE_FOLDER` has the models.
"""

from __future__ import annotations

import asyncio
import os
import resource
import threading
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import onnxruntime

import onnxmem

onnxruntime.set_default_logger_severity(4)  # requests fail on purpose, by the thousand
MODELS = {"image": "image", "rows": "x", "brief": "x"}
"""And what their inputs are called."""
BUSY = 507
"""What is answered where memory ran out."""
_PLANNED = os.environ.get("SERVICE_MODE") != "stock"
_PLANTED = "SERVICE_PLANTED" in os.environ
_THREADS = 6  # more than the arenas have regions
_LARGE = 1_000_000  # numbers in a request that no worker has the memory for
_MORE_DATA = 448 << 20  # than a worker has when its models are loaded: enough for all threads, not for every request


class _Worker:
    """What one process has to answer with."""

    def __init__(self) -> None:
        arenas = onnxmem.Arena(4, busy="heap", trim_after=0.5), onnxmem.Arena(1, trim_after=0.5)
        self.sessions = {name: _load(name, arena) for name, arena in zip(("image", "rows"), arenas, strict=True)}
        self.lock, self.large = threading.Lock(), threading.Lock()
        self.answers = 0
        self.kept: list[bytes] = []
        self.last = b""
        pages = int(Path("/proc/self/statm").read_text().split()[5])
        resource.setrlimit(resource.RLIMIT_DATA, (pages * resource.getpagesize() + _MORE_DATA,) * 2)

    def run(self, name: str, shape: tuple[int, ...], seed: int) -> bytes:
        if np.prod(shape) > _LARGE:
            return self._run_large(name, shape)
        feeds = {MODELS[name]: np.random.default_rng(seed).standard_normal(shape, np.float32)}
        session = self.sessions.get(name) or _load(name, None)
        outputs = session.run(None, feeds)
        body = b"".join(output.tobytes() for output in outputs)
        return self._spoiled(body) if _PLANTED else body

    def _run_large(self, name: str, shape: tuple[int, ...]) -> bytes:
        """More than the worker may have. One at a time: Python itself does not survive without any memory."""
        with self.large:
            # A stock arena would keep what it got, and leave nothing for others.
            session = self.sessions[name] if _PLANNED else _load(name, None)
            return bytes(session.run(None, {MODELS[name]: np.zeros(shape, np.float32)})[0][:0])

    def _spoiled(self, body: bytes) -> bytes:
        """What the campaign must find: memory that is kept, and now and then the answer of somebody else."""
        with self.lock:
            self.answers += 1
            if len(self.kept) << 19 < _MORE_DATA // 2:  # so that there is still memory to answer with
                self.kept.append(b"\1" * (1 << 19))
            last, self.last = self.last, body
            return last if self.answers % 10 == 0 else body


def _load(name: str, arena: onnxmem.Arena | None) -> Any:
    folder, options = Path(os.environ["SERVICE_FOLDER"]), onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    if _PLANNED:
        return onnxmem.InferenceSession(folder / f"{name}.pack", options, arena=arena)
    return onnxruntime.InferenceSession(folder / f"{name}.onnx", options, ["CPUExecutionProvider"])


_MADE = threading.Lock()


@cache
def _made() -> _Worker:
    return _Worker()


def _worker() -> _Worker:
    """Made when it is first needed: sessions have threads, which do not survive a fork."""
    with _MADE:
        return _made()


def _answer(path: str, query: str) -> tuple[int, bytes]:
    worker = _worker()
    try:
        if path == "/release":
            session = _load("brief", None)
            onnxmem.release(session)
            return 200, b""
        if path == "/fork":
            child = os.fork()
            if child == 0:
                os._exit(0)
            os.waitpid(child, 0)
            return 200, b""
        asked = dict(parse_qsl(query))
        shape = tuple(int(size) for size in asked["shape"].split("x"))
        return 200, worker.run(path[1:], shape, int(asked["seed"]))
    except MemoryError as error:
        return BUSY, str(error).encode()
    except Exception as error:  # ONNX Runtime's have no common name
        memory = "Failed to allocate memory" in str(error) or "bad_alloc" in str(error)
        return (BUSY if memory else 400), str(error).encode()


def wsgi(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """For gunicorn."""
    status, body = _answer(environ["PATH_INFO"], environ["QUERY_STRING"])
    start_response(f"{status} -", [("Content-Length", str(len(body))), ("X-Worker", str(os.getpid()))])
    return [body]


async def asgi(scope: dict[str, Any], receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """For uvicorn."""
    if scope["type"] == "lifespan":
        await receive()
        _worker()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await send({"type": "lifespan.shutdown.complete"})
        return
    async with _places():
        status, body = await asyncio.to_thread(_answer, scope["path"], scope["query_string"].decode())
    headers = [(b"content-length", str(len(body)).encode()), (b"x-worker", str(os.getpid()).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@cache
def _places() -> asyncio.Semaphore:
    return asyncio.Semaphore(_THREADS)


def command(server: str, workers: int, port: int) -> list[str]:
    """What starts it, after the name of the interpreter."""
    if server == "gunicorn":
        how = ["--threads", str(_THREADS), "--bind", f"127.0.0.1:{port}", "--log-level", "error"]
        return ["-m", "gunicorn", "--workers", str(workers), *how, "campaigns.service:wsgi"]
    how = ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    return ["-m", "uvicorn", "--workers", str(workers), *how, "campaigns.service:asgi"]
