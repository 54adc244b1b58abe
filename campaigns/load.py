"""A day of a small service in twenty minutes: no wrong answer, no growth, and the latency of stock sessions.

    python -m campaigns.load                              gunicorn and uvicorn, four workers each, ten minutes each
    python -m campaigns.load gunicorn --workers 2 --minutes 1
    python -m campaigns.load --planted                    a service that is wrong on purpose: it must be found

Two services run (campaigns/service.py), one on planned packages and one on stock sessions; clients ask them in turns.
They ask for several shapes at once, more than there are regions, for models that are loaded and released, for shapes
that cannot be and for more memory than the workers may have; they go away without an answer, and let workers fork.
Every answer is compared with a stock session's, bit for bit.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
import onnxruntime
import psutil

import onnxmem
from campaigns import service
from onnxmem import zoo
from onnxmem.measurement import probes
from onnxmem.units import format_bytes

ROOT = Path(__file__).parents[1]
SERVERS = ("gunicorn", "uvicorn")
_CLIENTS = 14
_SEEDS = 5
_SHAPES = {
    "image": ("1x3x32x32", "2x3x32x64", "1x3x96x64", "1x3x128x128"),
    "rows": ("1x256", "7x256", "32x256"),
    "brief": ("3x256",),
}
_BAD = ("image?shape=1x3x33x33", "image?shape=1x5x32x32", "rows?shape=1x255")  # the first is found out in mid-run
_LARGE = "image?shape=1x3x5120x5120"
"""Its first node has no memory to write to, planned or not. What failed later the better it used memory would take the
time of others."""
_KINDS = {"ordinary": 900, "brief": 30, "bad": 30, "gone": 30, "release": 2, "fork": 5, "large": 2}
"""What is asked for, and how often."""
_ANSWER_SECONDS = 120.0
_WARM_ANSWERS = 30
"""What each worker has answered before memory counts."""
_SLICE_SECONDS = 5.0
_GROWTH = 4 << 20
"""By how much a worker may be larger in the second half than between the first tenth and that."""
_SETTLED = 60.0
"""Seconds from which on growth is judged."""
_SLOWER = 1.1
_SHOWN = 30.0
_ENOUGH_PAIRS = 20
"""Slices of which a judgement on latency can be made."""


class Asked(NamedTuple):
    """One request, and what became of it."""

    port: int
    kind: str
    status: int = 0
    seconds: float = 0.0
    worker: int = 0


def prepare(folder: Path) -> dict[str, bytes]:
    """Write the models and packages, and say what a stock session answers to everything that will be asked."""
    protos = {
        "image": zoo.build("unet", channels=4),
        "rows": zoo.build("matmul", layers=4, width=256),
        "brief": zoo.build("matmul", layers=2, width=256),
    }
    options, expected = onnxruntime.SessionOptions(), {}
    options.intra_op_num_threads = 1
    for name, proto in protos.items():
        onnx.save(proto, folder / f"{name}.onnx")
        # As one packs for a service: with plans for what will be asked, but for one shape that nobody thought of.
        sizes = [{service.MODELS[name]: tuple(map(int, shape.split("x")))} for shape in _SHAPES[name]]
        onnxmem.pack(folder / f"{name}.onnx", folder / f"{name}.pack", plans=sizes[-3:])
        session = onnxruntime.InferenceSession(folder / f"{name}.onnx", options, ["CPUExecutionProvider"])
        for shape in _SHAPES[name]:
            for seed in range(_SEEDS):
                feed = np.random.default_rng(seed).standard_normal([*map(int, shape.split("x"))], np.float32)
                outputs = session.run(None, {service.MODELS[name]: feed})
                expected[f"{name}?shape={shape}&seed={seed}"] = b"".join(output.tobytes() for output in outputs)
    return expected


@contextmanager
def serving(folder: Path, server: str, workers: int, mode: str, planted: bool) -> Iterator[int]:
    """A service at a port of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    settings = {"SERVICE_FOLDER": str(folder), "SERVICE_MODE": mode, "ONNXMEM_KEEP_PLANS": "0"}
    if planted and mode == "planned":
        settings["SERVICE_PLANTED"] = "1"
    started = subprocess.Popen(
        [sys.executable, *service.command(server, workers, port)],
        cwd=ROOT,
        # As docs/serving.md says for servers with threads; the environment may say otherwise.
        env={"MALLOC_ARENA_MAX": "2", **os.environ, **settings},
        start_new_session=True,
    )
    try:
        yield port
    finally:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()


class Clients:
    """Threads that ask, and what they found."""

    def __init__(self, expected: dict[str, bytes], seed: int) -> None:
        self.expected = expected
        self.ordinary = [each for each in expected if not each.startswith("brief")]
        self.brief = [each for each in expected if each.startswith("brief")]
        self.port = 0
        self.modes: dict[int, str] = {}
        """What is served at each port."""
        self.kinds = {"ordinary": 1}
        """What they ask for. At first nothing odd: gunicorn starts threads as it needs them, and ends with one that
        there is no memory for."""
        self.asked: list[Asked] = []
        self.findings: Counter[str] = Counter()
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._ask_on, args=(random.Random(f"{seed} {number}"),), daemon=True)
            for number in range(_CLIENTS)
        ]

    @contextmanager
    def at_work(self, port: int) -> Iterator[None]:
        self.port = port
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()

    def _ask_on(self, chance: random.Random) -> None:
        while not self._stop.is_set():
            kinds = self.kinds
            (kind,) = chance.choices(list(kinds), list(kinds.values()))
            try:
                self._ask(kind, chance)
            except Exception as error:  # whatever it is, nobody may see it
                self.findings[f"{kind}, {self.modes.get(self.port)}: {type(error).__name__}: {error}"] += 1

    def _ask(self, kind: str, chance: random.Random) -> None:
        words = {
            "ordinary": chance.choice(self.ordinary),
            "gone": chance.choice(self.ordinary),
            "brief": chance.choice(self.brief),
            "bad": f"{chance.choice(_BAD)}&seed=1",
            "large": f"{_LARGE}&seed=1",
        }.get(kind, kind)
        if kind == "gone":
            self._go_away(f"GET /{words} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), chance)
            return
        port, started = self.port, time.perf_counter()
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", f"/{words}", headers={"Connection": "close"})
            response = connection.getresponse()
            body, worker = response.read(), int(response.headers["X-Worker"])
        finally:
            connection.close()
        self.asked.append(Asked(port, kind, response.status, time.perf_counter() - started, worker))
        self._judge(kind, words, response.status, body)

    def _go_away(self, request: bytes, chance: random.Random) -> None:
        """In the middle of a request, or before the answer to it."""
        port = self.port
        with socket.create_connection(("127.0.0.1", port), timeout=_ANSWER_SECONDS) as connection:
            connection.sendall(request[: chance.choice((len(request), len(request) // 2))])
            time.sleep(chance.random() / 100)
        self.asked.append(Asked(port, "gone"))

    def _judge(self, kind: str, words: str, status: int, body: bytes) -> None:
        if kind in ("ordinary", "brief") and status == 200:
            if body != self.expected[words]:
                self.findings["wrong: an answer that is not stock's"] += 1
        elif status not in (service.BUSY, 400 if kind == "bad" else 200):  # another may have had all the memory
            self.findings[f"{kind}: answered with {status}: {body[:200]!r}"] += 1


def _until_warm(clients: Clients, workers: int) -> set[int]:
    """Wait until all workers have answered often, and say which they are."""
    end = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < end:
        answers = Counter(each.worker for each in tuple(clients.asked) if each.worker and each.port == clients.port)
        if len(answers) >= workers and min(answers.values()) >= _WARM_ANSWERS:
            return set(answers)
        time.sleep(0.1)
    raise RuntimeError(f"not all {workers} workers have answered {_WARM_ANSWERS} requests")


def _wait_for(port: int) -> None:
    end = time.monotonic() + _ANSWER_SECONDS
    while time.monotonic() < end:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError("the service did not start")


def _memory(workers: set[int]) -> int:
    return sum(pss for pid in workers if isinstance(pss := probes.read(pid).pss, int))


def _p99(seconds: Sequence[float]) -> float:
    return float(np.quantile(seconds, 0.99)) if seconds else float("nan")


class Seen(NamedTuple):
    """What was seen while a service was under load."""

    seconds: float
    busy: float
    """The share of all processors' time that was not idle."""
    known: dict[str, set[int]]
    """The workers, when they were warm, by mode."""
    memory: dict[str, list[int]]
    """Theirs together, at regular times."""
    latency: dict[str, list[list[float]]]
    """Of ordinary requests, by mode and slice."""


def load(server: str, workers: int, seconds: float, clients: Clients, ports: dict[str, int]) -> Seen:
    """Put both services under load, in turns."""
    for mode, port in ports.items():
        _wait_for(port)
        clients.modes[port] = mode
    with clients.at_work(ports["planned"]):
        known = {}
        for mode, clients.port in ports.items():
            known[mode] = _until_warm(clients, workers)
        clients.kinds = _KINDS
        psutil.cpu_percent()
        length, started = min(_SLICE_SECONDS, seconds / 6), time.monotonic()
        memory: dict[str, list[int]] = {mode: [] for mode in ports}
        latency: dict[str, list[list[float]]] = {mode: [] for mode in ports}
        shown = started
        while time.monotonic() - started < seconds:
            for mode, port in ports.items():
                clients.port, first, end = port, len(clients.asked), time.monotonic() + length
                while time.monotonic() < end:
                    time.sleep(length / 10)
                    memory[mode].append(_memory(known[mode]))
                here = (each for each in clients.asked[first:] if each.port == port)
                latency[mode].append([each.seconds for each in here if (each.kind, each.status) == ("ordinary", 200)])
            if time.monotonic() - shown > _SHOWN:
                shown = time.monotonic()
                print(f"  {server}: {len(clients.asked):,} requests, {dict(clients.findings)}", file=sys.stderr)
        return Seen(time.monotonic() - started, psutil.cpu_percent() / 100, known, memory, latency)


def judge(
    server: str, workers: int, clients: Clients, seen: Seen, ports: dict[str, int], *, planted: bool = False
) -> Counter[str]:
    """Say what was found."""
    findings, asked = Counter(clients.findings), clients.asked
    compared = sum(each.kind in ("ordinary", "brief") and each.status == 200 for each in asked)
    refused = sum(each.status == service.BUSY for each in asked)
    kinds = Counter(each.kind for each in asked)
    print(f"{server}: {len(asked):,} requests in {seen.seconds:.0f} s to {workers} workers each: "
          f"{compared:,} answers compared, {kinds['bad']:,} refused for their shape, {refused:,} for want of memory, "
          f"{kinds['gone']:,} clients gone, {kinds['brief'] + kinds['release']:,} sessions loaded and released, "
          f"{kinds['fork']:,} forks")  # fmt: skip
    for mode, memory in seen.memory.items():
        half = len(memory) // 2
        # The least of many: what a request takes while it is answered comes and goes.
        early, late = min(memory[half // 5 : half]), min(memory[half:])
        print(f"  memory, {mode}: {format_bytes(early)} after the first tenth, {format_bytes(late)} in the second half")
        # In a few seconds not every worker has seen every shape.
        judged = mode == "planned" and (planted or seen.seconds >= _SETTLED)
        if judged and late - early > _GROWTH * workers:
            findings[f"growth: by {format_bytes(late - early)}"] += 1
    for mode, port in ports.items():
        others = {each.worker for each in asked if each.port == port and each.worker} - seen.known[mode]
        if others and mode == "planned":
            findings["died: a worker, which was replaced"] += len(others)
        elif others:
            print(f"  {len(others)} workers of the stock service died and were replaced")
    # The first tenth is for learning: plans are being improved.
    later = {mode: parts[len(parts) // 10 :] for mode, parts in seen.latency.items()}
    pairs = list(zip(*later.values(), strict=True))
    ratios = sorted(_p99(planned) / _p99(stock) for planned, stock in pairs if planned and stock)
    whole = {mode: _p99([each for part in parts for each in part]) for mode, parts in later.items()}
    ratio = whole["planned"] / whole["stock"]
    print(f"  p99: {whole['planned'] * 1e3:.1f} ms planned, {whole['stock'] * 1e3:.1f} ms stock: {ratio:.2f} ×; "
          f"middle half of {len(ratios)} pairs of slices: {np.quantile(ratios or [np.nan], 0.25):.2f} to "
          f"{np.quantile(ratios or [np.nan], 0.75):.2f} ×; processors {seen.busy:.0%} busy, "
          f"load {os.getloadavg()[1]:.1f}")  # fmt: skip
    if len(ratios) >= _ENOUGH_PAIRS and ratio > _SLOWER:
        findings[f"slow: p99 is {ratio:.2f} times stock's"] += 1
    for what, count in findings.most_common():
        print(f"  found {count} ×: {what}", flush=True)
    return findings


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.load", description=__doc__.splitlines()[0])
    parser.add_argument("servers", nargs="*", metavar="SERVER", help=f"some of: {', '.join(SERVERS)}")
    parser.add_argument("--minutes", type=float, default=20.0, help="of all of them together")
    parser.add_argument("--workers", type=int, default=4, help="of each service")
    parser.add_argument("--planted", action="store_true", help="serve with a service that is wrong on purpose")
    chosen = parser.parse_args()
    servers = chosen.servers or SERVERS
    if unknown := [name for name in servers if name not in SERVERS]:
        parser.error(f"there is no server '{unknown[0]}'")
    found: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        expected = prepare(folder)
        for server in servers:
            with ExitStack() as running:
                ports = {
                    mode: running.enter_context(serving(folder, server, chosen.workers, mode, chosen.planted))
                    for mode in ("planned", "stock")
                }
                clients = Clients(expected, seed=0)
                seen = load(server, chosen.workers, chosen.minutes * 60 / len(servers), clients, ports)
            found += judge(server, chosen.workers, clients, seen, ports, planted=chosen.planted)
    if chosen.planted:
        return 0 if {"wrong", "growth"} <= {what.split(":")[0] for what in found} else 1
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
