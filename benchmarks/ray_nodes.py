"""Ray nodes on this machine, as `ray start` starts them: loopback only, each a process that can be killed by itself."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

HERE = "127.0.0.1"
PATIENCE = {
    # However long a busy machine takes: nodes have time to start, and are not thought dead because they are slow.
    "RAY_raylet_start_wait_time_s": "600",
    "RAY_health_check_timeout_ms": "60000",
    "RAY_agent_register_timeout_ms": "600000",  # a node ends if one of its helpers takes longer to start
    "RAY_gcs_server_request_timeout_seconds": "300",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "disabled",
}


class RayNodes:
    """A cluster of `ray start --head`, and of as many more as are added; all of it ends with the context."""

    def __init__(self, cpus: int = 0, **more: Any) -> None:
        """How many processors the head has for others."""
        # Sockets have names of at most 107 characters: pytest's folders are too long.
        self._folder = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
        self._environment = {**os.environ, **PATIENCE}
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.address = f"{HERE}:{_free_port()}"
        self._head = {"cpus": cpus, **more}

    def __enter__(self) -> Self:
        port = self.address.rpartition(":")[2]
        self._start("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._folder}", **self._head)
        return self

    def __exit__(self, *error: object) -> None:
        for node in reversed(self._nodes):
            self.kill(node)
        shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, cpus: int = 1, memory: int | None = None) -> subprocess.Popen[bytes]:
        """One more node, which may give away this much."""
        return self._start(f"--address={self.address}", cpus=cpus, memory=memory)

    def kill(self, node: subprocess.Popen[bytes]) -> None:
        """SIGKILL, of the node and all that runs on it, as when a machine is lost."""
        if node.poll() is not None:
            return
        parts = psutil.Process(node.pid).children(recursive=True)
        node.kill()
        for part in parts:
            with suppress(psutil.NoSuchProcess):
                part.kill()
        node.wait()
        psutil.wait_procs(parts)

    @property
    def alive(self) -> list[subprocess.Popen[bytes]]:
        """Those that were not killed."""
        return [node for node in self._nodes if node.poll() is None]

    def _start(self, *arguments: str, cpus: int, memory: int | None = None) -> subprocess.Popen[bytes]:
        options = ["--num-cpus", str(cpus), "--node-ip-address", HERE, "--object-store-memory", str(80 * 2**20)]
        options += [] if memory is None else ["--memory", str(memory)]
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *arguments, *options]
        with (self._folder / f"node-{len(self._nodes)}.log").open("wb") as log:
            node = subprocess.Popen(command, env=self._environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._nodes.append(node)
        while not any("raylet" in child.name() for child in psutil.Process(node.pid).children(recursive=True)):
            if node.poll() is not None:
                raise RuntimeError(Path(log.name).read_text(errors="replace"))
            time.sleep(0.1)
        return node


def _free_port() -> int:
    with socket.socket() as found:
        found.bind((HERE, 0))
        return int(found.getsockname()[1])
