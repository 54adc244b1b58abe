"""Figures from a process that has done nothing else: a benchmark asks itself with `--child`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any


def ask(benchmark: str, *arguments: str, settings: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What `python -m benchmarks.BENCHMARK --child ARGUMENTS` prints last, with these environment variables."""
    command = [sys.executable, "-m", f"benchmarks.{benchmark}", "--child", *arguments]
    environment = {**os.environ, **(settings or {})}
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900, env=environment)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: exit {run.returncode}: {run.stderr.strip()[-300:]}")
    result: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return result
