"""`onnxmem demo`: the main job, on a model that comes with the package."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from onnxmem.cli import options
from onnxmem.cli.console import print_json, print_text, stage

# What is done to the model after the estimate, in which scenario, with which arguments: a section of the report each.
STAGES: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("measuring it in a fresh process", "onnxmem.measurement.measure:measure", {"mode": "stock"}, {}),
    # Its nodes are stock's: they need no second look.
    ("measuring it inside its plan", "onnxmem.measurement.measure:measure", {"mode": "planned"}, {"nodes": False}),
    ("letting go of it, step by step", "onnxmem.releasing.ladder:climb", {"runs": 1}, {}),
)
SHAPE = (1, 3, 512, 512)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to put all files.")] = Path(
        "onnxmem-demo"
    ),
    html: options.Html = None,
    json: options.Json = False,
) -> None:
    """Estimate, plan, measure (stock and planned) and release a U-Net for 512 × 512 pixels, and make a report."""
    import onnx  # noqa: PLC0415

    from onnxmem import zoo  # noqa: PLC0415
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.estimation.estimate import compute_estimate, estimate  # noqa: PLC0415
    from onnxmem.files import replacing  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.report.build import document_of, make_report  # noqa: PLC0415
    from onnxmem.report.charts.memory_map import memory_map  # noqa: PLC0415
    from onnxmem.report.charts.picture import save_chart  # noqa: PLC0415
    from onnxmem.report.save import save_report  # noqa: PLC0415
    from onnxmem.report.sections.overview import MEASURED, stock_against_planned  # noqa: PLC0415
    from onnxmem.report.text import demo_text  # noqa: PLC0415
    from onnxmem.schedule.scheduled import Question  # noqa: PLC0415

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{output}': {error.strerror}") from error
    page, picture, path = html or output / "report.html", output / "memory-map.svg", output / "unet.onnx"
    options.check_html(page)
    with stage("building a U-Net and estimating it"):
        with replacing(path) as temporary:
            onnx.save(zoo.build("unet"), temporary)
        model = Model.open(path)
        symbolic = estimate(model, strategies=["best"])
        result, _, placed = compute_estimate(model, Question(shapes={"image": SHAPE}))
    results = [document_of(result), *(document_of(each) for each in _observe(path))]
    with stage("drawing"):
        report = make_report(results, "A U-Net at 512 × 512 pixels")
        save_chart(memory_map(placed, title=result.about.title), picture)
        save_report(report, page)
    if json:
        print_json({**results[0], "picture": str(picture), "report": str(page)})
    else:
        found = [(section.heading, section.summary) for section in report.sections if section.source is not results[0]]
        saved = stock_against_planned([document for document in results if document["schema"] == MEASURED])
        print_text(demo_text(result, placed, symbolic.formula, found, saved, picture, page))


def _observe(path: Path) -> list[Any]:
    """The results of all stages; where the system cannot do one, it says so and the others are done."""
    import importlib  # noqa: PLC0415
    from dataclasses import replace  # noqa: PLC0415

    from onnxmem.errors import RuntimeUnsupported  # noqa: PLC0415
    from onnxmem.measurement.scenario import Scenario  # noqa: PLC0415

    scenario, results = Scenario(path, shapes={"image": SHAPE}, runs=3), []
    for what, where, settings, arguments in STAGES:
        module, name = where.split(":")
        try:
            with stage(what):
                work = getattr(importlib.import_module(module), name)
                results.append(work(replace(scenario, **settings), **arguments))
        except RuntimeUnsupported as error:
            print(f"onnxmem: not {what}: {error}", file=sys.stderr)  # noqa: T201
    return results
