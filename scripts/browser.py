"""A browser for the tests of pages: the one that is there, or Debian's Chromium where it may be installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

NAMES = (os.environ.get("ONNXMEM_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")
_HOW = "apt-get install chromium, or set ONNXMEM_CHROMIUM to the path of a Chromium; its tests are skipped until then"


def find() -> str | None:
    """Its path."""
    return next((found for name in NAMES if name and (found := shutil.which(name))), None)


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
