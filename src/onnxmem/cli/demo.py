"""`onnxmem demo`: the main job, on a model that comes with the package."""

from __future__ import annotations

import json as jsonlib
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import options
from onnxmem.cli.console import progress, tell
from onnxmem.cli.output import check_writable, print_json, print_report
from onnxmem.commands import path_word
from onnxmem.progress import OnProgress, Progress

if TYPE_CHECKING:
    from onnxmem.report.report import Document
    from onnxmem.schedule.scheduled import Question

SHAPE = (1, 3, 512, 512)
_BATCH_ON_GPU = 8


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Where to put all files.")] = Path(
        "onnxmem-demo"
    ),
    html: Annotated[
        Path | None, typer.Option("--html", metavar="REPORT.html", help="Write the report here instead.")
    ] = None,
    device: options.Device = "cpu",
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Demonstrate all of it on a U-Net for 512 × 512 pixels.

    Estimates, plans, measures (stock and planned) and releases it, and makes a report.
    """
    import onnx  # noqa: PLC0415

    from onnxmem import zoo  # noqa: PLC0415
    from onnxmem.errors import MissingDependency, UsageError, check_extra  # noqa: PLC0415
    from onnxmem.estimation.estimate import compute_estimate, estimate  # noqa: PLC0415
    from onnxmem.files import replacing  # noqa: PLC0415
    from onnxmem.model.model import Model  # noqa: PLC0415
    from onnxmem.report.build import brief, document_of, make_report  # noqa: PLC0415
    from onnxmem.report.charts.memory_map import memory_map  # noqa: PLC0415
    from onnxmem.report.render.to_json import render_json  # noqa: PLC0415
    from onnxmem.report.save import save_chart, save_report  # noqa: PLC0415

    question = _question(device)
    if html is not None:
        check_writable(html, (".html",))
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"cannot make the folder '{output}': {error.strerror}") from error
    page, picture, path = html or output / "report.html", output / "memory-map.svg", output / "unet.onnx"
    for each in (page, picture, path):
        check_writable(each, ())
    with progress("demonstrating") as step:
        step(Progress("building a U-Net and estimating it"))
        with replacing(path) as temporary:
            onnx.save(zoo.build("unet"), temporary)
        model = Model.open(path)
        symbolic = estimate(model, strategies=["best"])
        result, _, placed = compute_estimate(model, question)
        estimated = _as_typed(document_of(result), "estimate", path, question, device)
        results = [estimated, *_observe(path, question, device, step)]
        step(Progress("making the report"))
        report = make_report(results, "A U-Net at 512 × 512 pixels")
        drawn: list[Path] = []
        try:
            check_extra("report")
            rows = results[0]["activations"]["placement"]
            save_chart(memory_map(placed, title=result.about.title, placement=rows), picture)
            save_report(report, page)
            drawn = [picture, page]
        except MissingDependency as error:
            missing = error
    if not drawn:
        tell(f"no picture and no page: {missing}", missing.hint)
    if json:
        print_json({**jsonlib.loads(render_json(report)), "files": [str(path), *map(str, drawn)]})
        return
    print_report(brief(report))
    if symbolic.formula:
        typer.echo(f"\nFor any size: peak = {symbolic.formula.text} bytes ({symbolic.formula.holds_for})")
    typer.echo("\n" + "\n".join(f"Written: {file}" for file in (path, *drawn)))
    typer.echo("Next: onnxmem measure YOUR_MODEL.onnx --mode planned")


def _question(device: str) -> Question:
    """A U-Net on the CPU; several images at once on a GPU, which has the room."""
    from onnxmem.measurement.device import check_device, device_number  # noqa: PLC0415
    from onnxmem.schedule.scheduled import Question  # noqa: PLC0415

    check_device(device)
    number = device_number(device)
    if number is None:
        return Question(shapes={"image": SHAPE})
    return Question(shapes={"image": (_BATCH_ON_GPU, *SHAPE[1:])}, device=number, time_limit=120.0)


def _observe(path: Path, question: Question, device: str, step: OnProgress) -> list[Document]:
    """The model measured twice and released; where the system cannot do one, it says so and the others are done."""
    from onnxmem.errors import RuntimeUnsupported  # noqa: PLC0415
    from onnxmem.explaining.explain import with_findings  # noqa: PLC0415
    from onnxmem.measurement.measure import measure  # noqa: PLC0415
    from onnxmem.releasing.ladder import release_ladder  # noqa: PLC0415
    from onnxmem.report.build import document_of  # noqa: PLC0415

    fed: dict[str, Any] = {"shapes": question.shapes, "device": device}
    stages: dict[str, tuple[str, Callable[[], Any]]] = {
        "measuring it in a fresh process": (
            "measure --runs 3",
            lambda: with_findings(measure(path, **fed, runs=3).document()),
        ),
        # Its nodes are stock's: they need no second look.
        "measuring it inside its plan": (
            "measure --runs 3 --mode planned --no-nodes",
            lambda: measure(path, **fed, runs=3, mode="planned", nodes=False),
        ),
        "releasing it, step by step": ("release --runs 1", lambda: release_ladder(path, **fed, runs=1)),
    }
    documents = []
    for what, (verb, work) in stages.items():
        step(Progress(what))
        try:
            documents.append(_as_typed(document_of(work()), verb, path, question, device))
        except RuntimeUnsupported as error:
            tell(f"not {what}: {error}", error.hint)
    return documents


def _as_typed(document: Document, verb: str, path: Path, question: Question, device: str) -> Document:
    """A result as if its own verb had been typed: what it says to do next is then about this file and these inputs."""
    (name, shape), *_ = question.shapes.items()
    words = ["onnxmem", *verb.split(), path_word(path), "--shape", f"{name}={'x'.join(map(str, shape))}"]
    return {**document, "command": shlex.join([*words, *(["--device", device] if device != "cpu" else [])])}
