"""The options that several verbs share, spelled and explained once."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli.console import stage

if TYPE_CHECKING:
    from onnxmem.measurement.scenario import Scenario
    from onnxmem.schedule.scheduled import Question

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file.", show_default=False)]
Shapes = Annotated[
    list[str] | None,
    typer.Option("--shape", metavar="INPUT=1x3x640x640", help="The shape of an input. May be repeated."),
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="A number for a free dimension. May be repeated.")
]
Inputs = Annotated[Path | None, typer.Option("--inputs", metavar="FEEDS.npz", help="Take the shapes of these arrays.")]
View = Annotated[
    str | None,
    typer.Option(
        metavar="raw|optimized",
        help="The graph as in the file, or as ONNX Runtime would run it (the default, if it can load it).",
        show_default=False,
    ),
]
Level = Annotated[
    str, typer.Option(metavar="LEVEL", help="Optimization level: disabled, basic, extended, layout or all.")
]
FixDims = Annotated[
    bool,
    typer.Option(
        "--fix-dims",
        help="Optimize for exactly these dimensions, as with free-dimension overrides in the session.",
    ),
]
Order = Annotated[
    str,
    typer.Option(
        metavar="ORDER",
        help="Execution order: file, ort-default, ort-priority, depth-first, breadth-first, greedy or best.",
    ),
]
Alias = Annotated[
    bool, typer.Option("--alias/--no-alias", help="Let Reshape, Squeeze, Identity … share their input's memory.")
]
InPlace = Annotated[
    bool, typer.Option("--in-place/--no-in-place", help="Let Relu, Softmax … overwrite an input nobody else needs.")
]
CountInputs = Annotated[bool, typer.Option("--count-inputs", help="Count the tensors that the caller feeds, too.")]
FeedArrays = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FEEDS.npz", help="Feed these arrays; without them inputs are generated."),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option("--range", metavar="INPUT=LOW:HIGH", help="What a generated input may hold. May be repeated."),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Generated inputs depend on this alone.")]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=VALUE",
        help="A session option (enable_mem_pattern=false) or configuration entry (session.disable_prepacking=1).",
    ),
]
Threads = Annotated[
    int | None, typer.Option(metavar="N", min=1, help="Threads inside an operator.", show_default="all cores")
]
Timeout = Annotated[float, typer.Option(metavar="SECONDS", min=0.0, help="Stop a process after this.")]
ResultFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="RESULT.json", help="Write the result as JSON.")
]
RunnablePath = Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx or .ort file.", show_default=False)]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        help="How to load and run: stock, tuned, planned, or what the file is for (docs/serving.md).  "
        "[default: stock; a package's own]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Html = Annotated[
    Path | None, typer.Option("--html", metavar="REPORT.html", help="Write the result as a page, too: one file.")
]
TimeLimit = Annotated[
    float, typer.Option("--time-limit", metavar="SECONDS", min=0.0, help="How long all of it may take.")
]


def question(
    shapes: list[str] | None,
    dims: list[str] | None,
    inputs: Path | None,
    *,
    view: str | None,
    level: str,
    fix_dims: bool,
    order: str,
    alias: bool,
    in_place: bool,
    count_inputs: bool,
    alignment: int | None,
    time_limit: float,
    seed: int = 0,
) -> Question:
    """The options as the library's question."""
    from onnxmem.model.bindings import parse_dim, parse_shape, read_feed_shapes  # noqa: PLC0415
    from onnxmem.schedule.scheduled import ALIGNMENT, Question  # noqa: PLC0415
    from onnxmem.schedule.storages import Rules  # noqa: PLC0415

    fed = read_feed_shapes(inputs) if inputs else {}
    return Question(
        shapes={**fed, **dict(parse_shape(text) for text in shapes or [])},
        dims=dict(parse_dim(text) for text in dims or []),
        view=view,
        level=level,
        fix_dims=fix_dims,
        order=order,
        rules=Rules(alias=alias, in_place=in_place, inputs=count_inputs),
        alignment=ALIGNMENT if alignment is None else alignment,
        time_limit=time_limit,
        seed=seed,
    )


def mode_for(mode: str | None, model: Path) -> str:
    """The mode asked for, if it can load this model; else stock, and for a package the one it was made for."""
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.measurement.signature import read_signature  # noqa: PLC0415
    from onnxmem.session.modes import FORMS, check_mode  # noqa: PLC0415
    from onnxmem.session.package import is_package, open_package  # noqa: PLC0415

    if mode is None and is_package(model):
        return open_package(model).manifest.mode
    chosen = check_mode(mode or "stock", model)
    if chosen.form in ("external", "prepacked") and model.is_file() and len(read_signature(model).files) == 1:
        raise UsageError(
            f"mode '{chosen.name}' needs {FORMS[chosen.form]}, and '{model.name}' holds its weights itself",
            hint=f"make one: onnxmem pack {model.name} --mode {chosen.name} -o FOLDER",
        )
    return chosen.name


def scenario(
    model: Path,
    shapes: list[str] | None,
    dims: list[str] | None,
    inputs: Path | None,
    settings: list[str] | None,
    **more: Any,
) -> Scenario:
    """The options of verbs that run a model, as the library's scenario."""
    from onnxmem.measurement.scenario import Scenario  # noqa: PLC0415
    from onnxmem.model.bindings import parse_dim, parse_shape  # noqa: PLC0415

    parsed = [parse_setting(text) for text in settings or []]
    return Scenario(
        model,
        shapes=dict(parse_shape(text) for text in shapes or []),
        dims=dict(parse_dim(text) for text in dims or []),
        inputs=inputs,
        options={name: value for name, value in parsed if "." not in name},
        config={name: str(value) for name, value in parsed if "." in name},
        **more,
    )


def check_html(path: Path | None) -> None:
    """Can the page be written? Asked before any work is done."""
    if path is not None:
        from onnxmem.report.save import report_kind  # noqa: PLC0415

        report_kind(path, ".html")


def write_html(path: Path | None, document: Mapping[str, Any]) -> None:
    """What `--html` asks for: a report of one result."""
    if path is not None:
        from onnxmem.report.build import make_report  # noqa: PLC0415
        from onnxmem.report.save import save_report  # noqa: PLC0415

        with stage("writing the report"):
            save_report(make_report([document]), path)


def parse_range(text: str) -> tuple[str, tuple[float, float]]:
    """Read `ids=0:30522`: what a generated input may hold, without the upper end."""
    from onnxmem.errors import UsageError  # noqa: PLC0415

    name, separator, bounds = text.rpartition("=")
    try:
        low, high = (float(bound) for bound in bounds.split(":"))
    except ValueError:
        separator = ""
    if not separator or not name or not low < high or math.isinf(low) or math.isinf(high):
        raise UsageError(f"'{text}' is not a range", hint="write it as input=0:30522, the upper end is not included")
    return name, (low, high)


def parse_dtype(text: str) -> tuple[str, str]:
    """Read `ids=int64`."""
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.measurement.feeds import GENERATED  # noqa: PLC0415

    name, separator, dtype = text.rpartition("=")
    if not separator or not name or dtype not in GENERATED:
        raise UsageError(
            f"'{text}' is not an input's type", hint=f"write it as input=int64; known: {', '.join(GENERATED)}"
        )
    return name, dtype


def parse_setting(text: str) -> tuple[str, bool | int | str]:
    """Read `enable_mem_pattern=false` or `session.disable_prepacking=1`; entries with a dot are always text."""
    from onnxmem.errors import UsageError  # noqa: PLC0415

    name, separator, value = text.partition("=")
    if not separator or not name:
        raise UsageError(f"'{text}' is not a session option", hint="write it as name=value")
    if "." in name:
        return name, value
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    return name, int(value) if value.lstrip("-").isdigit() else value
