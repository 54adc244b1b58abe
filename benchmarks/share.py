"""How much do N workers take, mode by mode, and what does it cost?

    python -m benchmarks.share [matmul] [resnet50] [transformer] [ort] [gib]

Markdown tables: four workers of a chain of MatMuls (448 MiB of weights), of a ResNet-50 and of a transformer encoder
of BERT's size, each in one run of `share`; what loading an .ort file takes at most; and a package of 1 GiB of weights.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx

from onnxmem import zoo
from onnxmem.packing.convert import convert
from onnxmem.packing.pack import pack
from onnxmem.sharing.share import share
from onnxmem.sharing.sharing import Sharing

MIB = 2**20
MODES = ("stock", "external", "mapped", "prepacked")


def mib(value: object) -> str:
    return f"{value / MIB:.0f}" if isinstance(value, int) else "–"


def ratio(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, float) else "–"


def four_workers(name: str, folder: Path, shapes: dict[str, tuple[int, ...]], **options: Any) -> None:
    """One run of `share` with four workers: memory against stock and the floor, latency in turns."""
    path = folder / f"{name}.onnx"
    onnx.save(zoo.build(name, **options), path)
    result = share(path, (4,), MODES, cold=False, runs=15, shapes=shapes)
    print(f"\n### {name}, {mib(result.weights_bytes)} MiB of weights, 4 workers\n")
    print("| mode | total PSS, MiB | of stock | of floor | private each, MiB | latency of stock | outputs |")
    print("|---|---|---|---|---|---|---|")
    for each, latency in zip(result.modes, result.latencies, strict=True):
        cells = (
            each.mode,
            mib(each.total_pss),
            ratio(each.of_baseline),
            ratio(each.of_floor),
            mib(each.worker_uss),
            ratio(latency.of_baseline),
            "equal" if each.same_outputs is True else "last bits differ",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def matmul(folder: Path) -> None:
    four_workers("matmul", folder, {"x": (64, 2048)}, layers=28, width=2048)


def resnet50(folder: Path) -> None:
    four_workers("resnet50", folder, {"image": (1, 3, 224, 224)})


def transformer(folder: Path) -> None:
    four_workers("transformer", folder, {"tokens": (1, 128), "mask": (1, 128)}, layers=12, width=768)


def ort(folder: Path) -> None:
    """What loading an .ort file takes at most, in terms of the file."""
    onnx.save(zoo.build("matmul", layers=28, width=2048), folder / "matmul.onnx")
    convert(folder / "matmul.onnx", "ort", folder / "matmul.ort")
    result: Sharing = share(folder / "matmul.ort", (1,), cold=False, iterations=3, shapes={"x": (64, 2048)})
    print(f"\n### Loading an .ort file of {mib(result.file_bytes)} MiB\n")
    print(
        "| mode | load peak of file | private of file | load, s | latency of ort | outputs |\n|---|---|---|---|---|---|"
    )
    for each, latency in zip(result.modes, result.latencies, strict=True):
        peak, private = each.load_peak, each.load_peak_anon
        cells = (
            each.mode,
            ratio(peak / result.file_bytes if isinstance(peak, int) else None),
            ratio(private / result.file_bytes if isinstance(private, int) else None),
            ratio(each.load_seconds),
            ratio(latency.of_baseline),
            "equal" if each.same_outputs is True else "last bits differ",
        )
        print(f"| {' | '.join(cells)} |", flush=True)


def gib(folder: Path) -> None:
    """Loading a package of 1 GiB of weights, five times."""
    onnx.save(zoo.build("matmul", layers=64, width=2048), folder / "gib.onnx")
    package = pack(folder / "gib.onnx", folder / "gib.pack")
    (folder / "gib.onnx").unlink()
    result = share(folder / "gib.pack", (1,), iterations=5, cold=False, runs=1)
    workers = result.groups[0].workers
    seconds = sorted(worker.load_seconds for worker in workers)
    private = [worker.loaded_anon for worker in workers]
    weights = package.manifest.weights.raw
    grown = max(value for value in private if isinstance(value, int)) / weights
    print(f"\n### Loading a package of {mib(weights)} MiB of weights\n")
    print(f"median {statistics.median(seconds):.2f} s ({seconds[0]:.2f}–{seconds[-1]:.2f}), private growth {grown:.1%}")


TABLES: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (matmul, resnet50, transformer, ort, gib)}


def main() -> None:
    for name in sys.argv[1:] or TABLES:
        with tempfile.TemporaryDirectory() as folder:
            TABLES[name](Path(folder))


if __name__ == "__main__":
    main()
