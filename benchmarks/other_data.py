"""Packages whose plan was recorded with other data: do runs take more than without a package?

    python -m benchmarks.other_data
    python -m benchmarks.other_data loop branch --json

Models with a Loop, an If, and sizes that depend on the values that are fed. Each is packed with plans for some data,
and run with others of the same shape, in a fresh process; beside it, the same model planned without a package. Growth
is the peak of the resident set from the first run on, minus the resident set after loading. Outputs are compared with a
stock session's bit by bit.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, parser

from benchmarks import planned
from benchmarks.fresh_process import ask
from onnxmem.packing.pack import pack

RUNS = 24
ALLOWED = 2**20

_HEADER = '<ir_version: 8, opset_import: ["" : 17]>'
_DEEP = """
    {0}1 = Conv <pads = [1, 1, 1, 1]> ({0}, k1)
    {0}2 = Relu ({0}1)
    {0}3 = Conv <pads = [1, 1, 1, 1]> ({0}2, k2)
    {0}4 = Sigmoid ({0}3)
    {0}5 = Mul ({0}3, {0}4)
"""
_KERNELS = "<float[8, 8, 3, 3] k1 = {{{k}}}, float[8, 8, 3, 3] k2 = {{{k}}}>"
# What is the same in every run: an image of 8 channels, two convolutions.
TEXTS = {
    "loop": """
agraph (float[1, 8, 256, 256] x, int64 turns) => (float[1, 8, 256, 256] y, float[n, 8, 256] rows) KERNELS {
    DEEP(x)
    go = Constant <value = bool {1}> ()
    y, rows = Loop (turns, go, x5) <body = turn (int64 i, bool c, float[1, 8, 256, 256] s) => (
        bool again, float[1, 8, 256, 256] t, float[8, 256] row) {
        again = Identity (c)
        DEEP(s)
        both = Concat <axis = 1> (s1, s5)
        low, high = Split <axis = 1> (both)
        t = Add (low, high)
        mean = ReduceMean <axes = [0, 3], keepdims = 0> (t)
        row = Identity (mean)
    }>
}""",
    "branch": """
agraph (float[1, 8, 256, 256] x, bool flag) => (float y) KERNELS {
    DEEP(x)
    z = If (flag) <
        then_branch = yes () => (float[1, 8, 256, 256] a) { twice = Concat <axis = 1> (x5, x5, x5, x5)
            low, l2, l3, high = Split <axis = 1> (twice) lowest = Relu (low) a = Add (lowest, high) },
        else_branch = no () => (float[1, 8, 256, 256] b) { e = Exp (x5) f = Neg (e) g = Add (e, f)
            h = Conv <pads = [1, 1, 1, 1]> (g, k1) b = Mul (h, f) }>
    w = Conv <pads = [1, 1, 1, 1]> (z, k2)
    v = Relu (w)
    y = ReduceMean <keepdims = 0> (v)
}""",
    "chosen_rows": """
agraph (float[4096, 512] x, float least) => (float[m, 512] y, float mean) {
    sums = ReduceMean <axes = [1], keepdims = 0> (x)
    above = Greater (sums, least)
    found = NonZero (above)
    one = Constant <value = int64[1] {0}> ()
    rows = Squeeze (found, one)
    some = Gather <axis = 0> (x, rows)
    a = Exp (some)
    b = Add (a, some)
    c = Concat <axis = 1> (a, b)
    d = Relu (c)
    e, f = Split <axis = 1> (d)
    y = Mul (e, f)
    g = Exp (x)
    h = Add (g, x)
    mean = ReduceMean <keepdims = 0> (h)
}""",
    "first_part": """
agraph (float[1, 8, 65536] x, int64[65536] mask) => (float[1, 8, m] y) {
    axes = Constant <value = int64[1] {0}> ()
    count = ReduceSum <keepdims = 1> (mask, axes)
    zero = Constant <value = int64[1] {0}> ()
    two = Constant <value = int64[1] {2}> ()
    part = Slice (x, zero, count, two)
    z = Neg (part)
    a = Exp (z)
    b = Add (a, z)
    c = Concat <axis = 1> (a, b, z)
    d = Relu (c)
    e = Mul (d, c)
    f, g, h = Split <axis = 1> (e)
    i = Add (f, g)
    y = Add (i, h)
}""",
}


def build(name: str) -> ModelProto:
    """The model; its kernels hold the same numbers in every process."""
    random = np.random.default_rng(0)
    numbers = ", ".join(f"{value:.4f}" for value in random.standard_normal(8 * 8 * 9) / 8)
    text = TEXTS[name]
    while "DEEP(" in text:
        start = text.index("DEEP(")
        text = text[:start] + _DEEP.format(text[start + 5]) + text[start + 7 :]
    return parser.parse_model(_HEADER + text.replace("KERNELS", _KERNELS.format(k=numbers)))


def feeds(name: str, turn: int) -> dict[str, Any]:
    """Data of one run; those of turn 0 are what a package is made with. Shapes are always the same."""
    random = np.random.default_rng(turn)
    image = random.standard_normal((1, 8, 256, 256), np.float32)
    if name == "loop":
        return {"x": image, "turns": np.array(turn % 7 + 3)}
    if name == "branch":
        return {"x": image, "flag": np.array(turn == 0)}
    if name == "chosen_rows":
        least = np.array(random.uniform(-0.1, 0.1), np.float32)
        return {"x": random.standard_normal((4096, 512), np.float32), "least": least}
    mask = (np.arange(65536) < random.integers(10_000, 65_000)).astype(np.int64)
    return {"x": image.reshape(1, 8, 65536), "mask": mask}


def growth(name: str, path: Path, *, packaged: bool) -> dict[str, Any]:
    """One fresh process."""
    session = planned.open_session(path, "ordered" if packaged else "planned")
    data = [feeds(name, turn) for turn in range(1, RUNS + 1)]
    loaded, seconds = planned.settle(), []
    for each in data:
        began = time.perf_counter()
        session.run(None, each)
        seconds.append(time.perf_counter() - began)
    found: dict[str, Any] = {"growth_bytes": planned.status("VmHWM") - loaded, "seconds": statistics.median(seconds)}
    memory = session.memory
    found |= {"deviated": memory.runs_deviated, "reason": memory.shapes[0].reason if memory.shapes else ""}
    found["sha256"] = [planned.digest(session.run(None, each)) for each in data[:3]]
    return found


def stock(name: str, path: Path) -> dict[str, Any]:
    """What the outputs must be."""
    session = planned.open_session(path, "stock")
    return {"sha256": [planned.digest(session.run(None, feeds(name, turn))) for turn in range(1, 4)]}


def compare(name: str, folder: Path) -> dict[str, Any]:
    """One model with a package and without."""
    path, inputs = folder / f"{name}.onnx", folder / f"{name}.npz"
    path.write_bytes(build(name).SerializeToString())
    packed_with = feeds(name, 0)
    np.savez(inputs, **packed_with)
    shapes = {key: array.shape for key, array in packed_with.items()}
    package = pack(path, folder / f"{name}.pack", plans=[shapes], inputs=inputs).folder
    without, within, right = (child(name, where, how) for where, how in
                              ((path, "without"), (package, "package"), (path, "stock")))  # fmt: skip
    more = within["growth_bytes"] - without["growth_bytes"]
    same = without.pop("sha256") == within.pop("sha256") == right["sha256"]
    return {"model": name, "without": without, "package": within, "more_bytes": more, "identical": same}


def child(name: str, path: Path, how: str) -> dict[str, Any]:
    return ask("other_data", name, str(path), how)


def line(row: dict[str, Any]) -> str:
    cells = "".join(
        f"{row[how]['growth_bytes'] / 2**20:>10.1f}{1e3 * row[how]['seconds']:>10.1f}{row[how]['deviated']:>6}"
        for how in ("without", "package")
    )
    same = "same" if row["identical"] else "DIFFERENT"
    return f"{row['model']:<14}{cells}{row['more_bytes'] / 2**20:>+8.1f}  {same}"


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m benchmarks.other_data", description=__doc__.splitlines()[0])
    arguments.add_argument("names", nargs="*", metavar="MODEL", help=f"only these: {', '.join(TEXTS)}")
    arguments.add_argument("--json", action="store_true", help="one document instead of the table")
    arguments.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    asked = arguments.parse_args()
    if asked.child:
        name, path, how = asked.names
        found = stock(name, Path(path)) if how == "stock" else growth(name, Path(path), packaged=how == "package")
        print(json.dumps(found))
        return 0
    rows = []
    if not asked.json:
        print(
            f"{'model':<14}{'without':>10}{'ms':>10}{'dev.':>6}{'package':>10}{'ms':>10}{'dev.':>6}{'more':>8}  (MiB)"
        )
    with tempfile.TemporaryDirectory(prefix="onnxmem-") as folder:
        for name in asked.names or TEXTS:
            rows.append(compare(name, Path(folder)))
            if not asked.json:
                print(line(rows[-1]), flush=True)
    good = all(row["identical"] and row["more_bytes"] <= ALLOWED for row in rows)
    if asked.json:
        print(json.dumps({"schema": "onnxmem.benchmark.other_data/1", "rows": rows, "good": good}, indent=2))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
