"""PyTorch or ONNX for an image enhancer? Writes weights, exports, compares twice, and says whether the winners agree.

pip install 'onnxmem[torch,report]'
python examples/enhance/run.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from enhancer import make
from rich.console import Console

from onnxmem import compare
from onnxmem.comparison.compare import Comparison
from onnxmem.report.build import make_report
from onnxmem.report.charts.curves import scaling_chart
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.report.save import save_chart

HERE = Path(__file__).parent
MADE = HERE / "made"


def weights() -> Path:
    """Weights as training would leave them: a state dictionary in a .pth file. Here they are random, but always so."""
    path = MADE / "enhancer.pth"
    torch.manual_seed(0)
    torch.save(make().state_dict(), path)
    return path


def once(path: Path) -> Comparison:
    """One comparison, from the beginning."""
    return compare(
        [f"{HERE / 'enhancer.py'}:make"],
        weights=path,
        export=MADE,
        shapes={"image": (1, 3, "N", "N")},
        sizes=(128, 256, 512),
        runs=2,
        on_progress=lambda progress: print(progress.stage, file=sys.stderr),
    )


if __name__ == "__main__":
    MADE.mkdir(exist_ok=True)
    results = []
    for name in ("compare", "compare-again"):
        results.append(once(weights()))
        (MADE / f"{name}.json").write_text(json.dumps(results[-1].document(), indent=2))
    first, second = results
    save_chart(
        scaling_chart(first.document(), title="Image enhancer: peak memory against image size"), MADE / "scaling.svg"
    )
    console = Console(width=110, highlight=False, markup=False)
    console.print(render_terminal(make_report([first]), width=110))
    changed = first.disagreements(second)
    console.print(
        f"Compared again: {len(first.rows) - len(changed)} of {len(first.rows)} rows say the same.", *changed, sep="\n"
    )
