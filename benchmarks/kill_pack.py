"""Does a kill at any moment leave a package that loads and is wrong?

    python -m benchmarks.kill_pack [50]

`pack` is killed with SIGKILL at random moments, over an existing package and over none. After each kill there is
either no package or one whose every byte verifies and that computes what the model does; and no process is left.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from onnxmem import InferenceSession, verify_package, zoo

CODE = "import sys; from onnxmem import pack; pack(*sys.argv[1:3], force=True)"


def main() -> None:
    times = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model, target = folder / "model.onnx", folder / "model.pack"
        onnx.save(zoo.build("matmul", layers=4, width=1024), model)
        x = np.random.default_rng(0).random((2, 1024), dtype=np.float32)
        expected = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
        started = time.monotonic()
        subprocess.run([sys.executable, "-c", CODE, model, target], check=True)
        whole = time.monotonic() - started
        whole_package = shutil.copytree(target, folder / "whole")
        killed = kept = none = left = 0
        while killed < times:
            shutil.rmtree(target, ignore_errors=True)
            if killed % 2:
                shutil.copytree(whole_package, target)
            started = time.monotonic()
            child = subprocess.Popen([sys.executable, "-c", CODE, model, target])
            try:
                child.wait(chance.uniform(0.1, 1.0) * whole)
                whole = time.monotonic() - started  # the machine has become faster
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
                killed += 1
            if target.exists():
                verify_package(target)
                assert np.array_equal(InferenceSession(target).run(None, {"x": x})[0], expected), "it is wrong"
                kept += 1
            else:
                none += 1
            left = max(left, sum(entry.name.startswith(".model.pack.partial-") for entry in folder.iterdir()))
        shutil.rmtree(whole_package)
        subprocess.run([sys.executable, "-c", CODE, model, target], check=True)
        names = sorted(entry.name for entry in folder.iterdir())
    print(f"{killed} kills ({whole:.1f} s a try): {kept} times a whole package was there, {none} times none,")
    print(f"never a wrong one; at most {left} unfinished folders, and after one more pack: {', '.join(names)}")


if __name__ == "__main__":
    main()
