"""Does a sweep survive what can happen to it? Kills and a full disk at random moments, and the same table at the end.

On this machine: SIGKILL of the driver or of its worker, and no room on the disk of the store. On two Ray nodes, started
by `ray start` twice: SIGKILL of the driver, of a worker, and of a whole node, which another takes the place of.
"""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import onnx
import psutil

from benchmarks.ray_nodes import RayNodes
from onnxmem import zoo
from onnxmem.sweeping.read import Filter, read_rows

HERE = ("driver", "driver", "worker", "full disk")
"""Of those without Ray, as often as they stand here; the others are …"""
THERE = ("driver", "worker", "node", "node")
DISK = 48 * 2**20


def write_models(folder: Path, count: int) -> list[Path]:
    """So many small models, all different."""
    paths = []
    for number in range(count):
        paths.append(folder / f"net{number:02}.onnx")
        onnx.save(zoo.build("matmul", layers=1 + number % 4, width=64 + 8 * number), paths[-1])
    return paths


def table(store: Path) -> Counter[tuple[Any, ...]]:
    """What a store says that does not depend on when it was found out."""
    names = ("verb", "model", "mode", "size", "state", "reason", "processor")
    return Counter(tuple(row[name] for name in names) for row in read_rows(store, Filter()))


def kills(times: int, seed: int = 0) -> None:
    """So many of them, half on Ray and half without."""
    chance = random.Random(seed)
    here = [HERE[number % len(HERE)] for number in range((times + 1) // 2)]
    there = [THERE[number % len(THERE)] for number in range(times // 2)]
    for where, incidents in (("on two Ray nodes", there), ("on this machine", here)):
        chance.shuffle(incidents)
        with tempfile.TemporaryDirectory() as temporary, RayNodes() if incidents is there else nullcontext() as nodes:
            _Campaign(Path(temporary), nodes, chance).run(incidents, where)


@contextmanager
def small_disk(folder: Path) -> Iterator[bool]:
    """A file system of a few MiB there, if it may be mounted."""
    mount = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


class _Campaign:
    """Sweeps that are disturbed until nothing is left to happen, and looked at when they are done."""

    def __init__(self, folder: Path, nodes: RayNodes | None, chance: random.Random) -> None:
        self._folder, self._nodes, self._chance = folder, nodes, chance
        self._models = [str(path) for path in write_models(folder, 2)]
        self._happened: Counter[str] = Counter()
        for _ in range(2 if nodes else 0):
            nodes.add()  # type: ignore[union-attr]

    def run(self, incidents: Sequence[str], where: str) -> None:
        """All of them, over as many sweeps as it takes."""
        left, sweeps, began = list(incidents), 0, time.monotonic()
        whole = self._folder / "whole.sqlite"
        alone = self._start(whole)
        _, said = alone.communicate()
        assert alone.returncode == 0, said.decode()
        lasts = time.monotonic() - began
        while left:
            sweeps += 1
            disk = self._folder / f"disk{sweeps}"
            disk.mkdir()
            with small_disk(disk) as small:
                self._disturb(disk / "s.sqlite", left, lasts, small)
                self._check(disk / "s.sqlite", whole)
        happened = ", ".join(f"{count} × {what}" for what, count in sorted(self._happened.items()))
        print(f"{where}: {happened}, over {sweeps} sweeps of {sum(table(whole).values())} cells; each came to the same "
              f"table as one that was left alone, none lost, none doubled, integrity_check ok", flush=True)  # fmt: skip

    def _start(self, store: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "onnxmem", "sweep", *self._models, "--store", str(store)]
        command += ["--verbs", "plan,measure", "--dim", "batch=1,2", "--runs", "1", "--threads", "1", "--retries", "99"]
        command += ["--engine", "ray", "--address", self._nodes.address] if self._nodes else []
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def _disturb(self, store: Path, left: list[str], lasts: float, small: bool) -> None:
        """One sweep to its end: the same command, given again whenever it was ended."""
        while True:
            driver = self._start(store)
            while left:
                try:
                    driver.wait(self._chance.uniform(0.2, lasts))
                    break
                except subprocess.TimeoutExpired:
                    if self._happen(left[0], driver, store, small):
                        self._happened[left.pop(0)] += 1
            _, said = driver.communicate()
            if driver.returncode == 0:
                return
            # What ended it was a kill, or it says in a sentence that there is no room.
            sentences = (b"no room is left",) if small else (b"disk I/O error",)
            assert driver.returncode == -9 or any(each in said for each in sentences), said.decode()

    def _happen(self, what: str, driver: subprocess.Popen[bytes], store: Path, small: bool) -> bool:
        """Whether it could: a worker that is not there cannot be killed."""
        if what == "driver":
            driver.kill()
            driver.wait()
            return True
        if what == "full disk":
            return self._fill(driver, store, small)
        if what == "node":
            assert self._nodes is not None
            self._nodes.kill(self._chance.choice(self._nodes.alive[1:]))
            self._nodes.add()
            return True
        return self._kill_worker(driver)

    def _kill_worker(self, driver: subprocess.Popen[bytes]) -> bool:
        pids = [node.pid for node in self._nodes.alive[1:]] if self._nodes else [driver.pid]
        with suppress(psutil.NoSuchProcess):
            children = [child for pid in pids for child in psutil.Process(pid).children(recursive=True)]
            marked: Callable[[psutil.Process], bool] = lambda each: each.name().startswith("ray::Worker")  # noqa: E731
            workers = [each for each in children if marked(each)] if self._nodes else children
            if workers:
                self._chance.choice(workers).kill()
                return True
        return False

    def _fill(self, driver: subprocess.Popen[bytes], store: Path, small: bool) -> bool:
        """Take all room until the driver gives up; without a small disk, its files may grow no further."""
        if not small:
            import resource  # noqa: PLC0415

            most = store.stat().st_size if store.exists() else 4096
            resource.prlimit(driver.pid, resource.RLIMIT_FSIZE, (most, most))
            return driver.wait() != 0
        ballast = store.with_name("ballast")
        try:
            with suppress(OSError), ballast.open("wb", buffering=0) as file:
                while True:
                    file.write(bytes(4096))
            return driver.wait() != 0
        finally:
            ballast.unlink(missing_ok=True)

    def _check(self, store: Path, whole: Path) -> None:
        with closing(sqlite3.connect(store)) as connection:
            checked = connection.execute("PRAGMA integrity_check").fetchone()[0]
            counted = "SELECT count(*), count(DISTINCT document) FROM results"
            results, distinct = connection.execute(counted).fetchone()
        found, expected = table(store), table(whole)
        assert checked == "ok" and found == expected, found - expected | expected - found
        # Measurements are half of the cells, and each is in the history once.
        assert results == distinct == sum(expected.values()) // 2, "a result was lost or doubled"
