"""Does it work on the GPU at hand? About two and a half minutes, and nothing else may use the GPU meanwhile.

    python -m benchmarks.cuda_check [--folder FOLDER]

The tests marked `cuda`; then a model of each family, stock and planned, beside a second stock session that says what
latency is worth; then `measure --device cuda` of one of them, stock and planned. What takes too long is ended, and the
rest goes on. Exit code 1 if anything went wrong.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks import cuda_models

FAMILIES = ("U-Net 8×512²", "YOLO 8×640²", "transformer 8×512", "PP-OCRv6 det 4×640²", "loop of convolutions 8×256²")
MEASURED = "MobileNet 32×224²"
# The tests need no more of the repository than themselves: what else tests import is not on a machine like this.
PYTEST = ("pytest", "-q", "-p", "no:cacheprovider", "--noconftest", "-c", "/dev/null", "--rootdir", ".",
          "--import-mode=importlib", "-W", "ignore", "-m", "cuda", "tests/integration/test_cuda.py")  # fmt: skip


def step(title: str, seconds: float, *arguments: str) -> bool:
    """One part of it, in a process of its own."""
    print(f"\n== {title}", flush=True)
    began = time.monotonic()
    try:
        code = subprocess.run([sys.executable, "-m", *arguments], timeout=seconds, check=False).returncode
        print(f"== ended with {code} after {time.monotonic() - began:.0f} s", flush=True)
    except subprocess.TimeoutExpired:
        print(f"== not done within {seconds:g} s", flush=True)
        return False
    return code == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, help="for results; by default they are only printed")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        kept = options.folder or Path(made)
        case = cuda_models.find(MEASURED)
        model = cuda_models.locate(case, Path(made))
        shape = f"image={'x'.join(map(str, case.shapes[0]['image']))}"
        good = [
            step("tests", 100, *PYTEST),
            step("a model of each family", 80, "benchmarks.cuda", *FAMILIES, "--modes", "stock,planned", "--turns", "4",
                 "--folder", made, "--json", str(kept / "families.json")),
        ]  # fmt: skip
        for mode in ("stock", "planned"):
            arguments = "onnxmem", "measure", str(model), "--device", "cuda", "--mode", mode, "--shape", shape
            good.append(step(f"measure, {mode}", 30, *arguments, "-o", str(kept / f"measure-{mode}.json")))
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
