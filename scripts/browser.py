"""A browser to look at pages with, and a dashboard for it to look at.

The browser is the one that is there, or Debian's Chromium where it may be installed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = (os.environ.get("ONNXMEM_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
_HOW = "apt-get install chromium, or set ONNXMEM_CHROMIUM to the path of a Chromium; its tests are skipped until then"


def find() -> str | None:
    """Its path."""
    return next((found for name in NAMES if name and (found := shutil.which(name))), None)


@contextmanager
def opened(playwright: Any) -> Iterator[Any]:
    """It runs, headless, until the end of the block."""
    browser = playwright.chromium.launch(executable_path=find(), args=["--no-sandbox", "--disable-gpu"])
    try:
        yield browser
    finally:
        browser.close()


@contextmanager
def serving(*words: str, folder: Path | None = None) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`onnxmem app` at a port of its own, started in this folder: the server, and the address it has printed."""
    command = [sys.executable, "-m", "onnxmem", "app", *words, "--no-browser", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
        assert server.stderr is not None
        try:
            address = re.search(r"http://\S+", server.stderr.readline())
            assert address, "it printed no address"
            # What it prints later must not fill the pipe.
            threading.Thread(target=server.stderr.read, daemon=True).start()
            yield server, address[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


def install() -> bool:
    """Whether apt-get may and can."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    steps = (["apt-get", "update", "-q"], ["apt-get", "install", "-q", "-y", "--no-install-recommends", "chromium"])
    try:
        for step in steps:
            subprocess.run(
                step, env=quiet, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=300
            )
    except (OSError, subprocess.SubprocessError):
        return False
    return find() is not None


if __name__ == "__main__":
    if find() is None and not install():
        print(f"there is no browser for the tests of pages: {_HOW}", file=sys.stderr)
