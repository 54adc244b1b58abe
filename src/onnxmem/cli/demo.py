"""`onnxmem demo`: the main job, on a model that comes with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli.console import print_json, print_text, stage
from onnxmem.cli.options import Json


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to put the picture.")] = Path(
        "onnxmem-demo"
    ),
    json: Json = False,
) -> None:
    """Estimate and plan a U-Net for 512 × 512 pixels, and draw its memory map."""
    from onnxmem import zoo  # noqa: PLC0415
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.estimate import Question, estimate  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.report.documents import estimate_document  # noqa: PLC0415
    from onnxmem.report.memory_map import memory_map  # noqa: PLC0415
    from onnxmem.report.picture import save_chart  # noqa: PLC0415
    from onnxmem.report.text import demo_text  # noqa: PLC0415

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{output}': {error.strerror}") from error
    with stage("building a U-Net and estimating it"):
        model = Model.of(zoo.build("unet"), "U-Net")
        symbolic = estimate(model, Question(shapes={}, dims={}), ["best"])
        result = estimate(model, Question(shapes={"image": (1, 3, 512, 512)}, dims={}))
    picture = output / "memory-map.svg"
    with stage("drawing"):
        save_chart(memory_map(result.best, title=result.scheduled.title), picture)
    if json:
        print_json({**estimate_document(result), "picture": str(picture)})
    else:
        print_text(demo_text(result, symbolic.formula, picture))
