"""Does the planned session work with every minor release of ONNX Runtime that can be had here?

    python scripts/try_onnxruntime_versions.py [1.24 1.28 ...]

Makes an environment per release in a temporary folder, installs this project's wheel into it, and runs the tests of
the runtime. Run it with the Python of the project's own environment, which has what building takes.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OLDEST = (1, 24)
TESTS = [
    "tests/unit/session/planned/test_planned.py",
    "tests/unit/process/test_process_end.py",
    "tests/unit/session/test_session.py",
    "tests/unit/packing/test_ordering.py",
]


def releases(wanted: list[str]) -> list[str]:
    """The newest patch of each minor release, or of those asked for."""
    said = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "onnxruntime"], capture_output=True, text=True, check=False
    ).stdout
    newest: dict[tuple[int, int], tuple[int, ...]] = {}
    for text in re.findall(r"\b\d+\.\d+\.\d+\b", said):
        version = tuple(map(int, text.split(".")))
        minor = version[0], version[1]
        if minor >= OLDEST and (not wanted or f"{minor[0]}.{minor[1]}" in wanted):
            newest[minor] = max(version, newest.get(minor, version))
    return [".".join(map(str, newest[minor])) for minor in sorted(newest)]


def build(folder: Path) -> Path:
    """This project as a wheel."""
    command = [sys.executable, "-m", "pip", "wheel", str(ROOT), "--no-deps", "--no-build-isolation", "--quiet"]
    subprocess.run([*command, "--wheel-dir", str(folder)], check=True)
    return next(folder.glob("onnxmem-*.whl"))


def attempt(version: str, wheel: Path, folder: Path) -> str:
    """Install and test; the last line that pytest says."""
    python = folder / version / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", str(folder / version)], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    packages = [str(wheel), f"onnxruntime=={version}", "pytest", "hypothesis"]
    installed = subprocess.run([*install, *packages], capture_output=True, text=True, check=False)
    if installed.returncode != 0:
        return f"cannot be installed: {(installed.stderr.strip().splitlines() or ['pip said nothing'])[-1]}"
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *TESTS]
    run = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    said = run.stdout.strip().splitlines() or ["pytest said nothing"]
    failed = [line for line in said if line.startswith(("FAILED", "ERROR"))]
    return "; ".join([said[-1], *failed])


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as temporary:
        folder = Path(temporary)
        wheel = build(folder)
        results = {}
        for version in releases(sys.argv[1:]):
            results[version] = attempt(version, wheel, folder)
            print(f"onnxruntime {version:<10} {results[version]}", flush=True)
    return 0 if results and all("failed" not in said and "passed" in said for said in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
