"""The options that several verbs share, spelled and explained once; those that belong together as one record."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onnxmem.cli import parse

if TYPE_CHECKING:
    from onnxmem.schedule.scheduled import Question


def _complete(names: Callable[[], tuple[str, ...]]) -> Callable[[str], list[str]]:
    """What a shell offers for an option: those of the names that begin like what was typed."""
    return lambda incomplete: [name for name in names() if name.startswith(incomplete)]


def _modes() -> tuple[str, ...]:
    from onnxmem.session.modes import MODES  # noqa: PLC0415

    return tuple(mode.name for mode in MODES)


def _orders() -> tuple[str, ...]:
    from onnxmem.schedule.orders import ORDERS  # noqa: PLC0415

    return tuple(ORDERS)


def _strategies() -> tuple[str, ...]:
    from onnxmem.placement.strategies import JOINT, OPTIONAL, STRATEGIES  # noqa: PLC0415

    return (*STRATEGIES, *OPTIONAL, JOINT)


def _figures() -> tuple[str, ...]:
    from onnxmem.history.figures import FIGURES  # noqa: PLC0415

    return tuple(figure.name for figure in FIGURES)


complete_figure, complete_mode, complete_order, complete_strategy = map(
    _complete, (_figures, _modes, _orders, _strategies)
)
complete_device = _complete(lambda: ("cpu", "cuda"))

ModelPath = Annotated[Path, typer.Argument(metavar="MODEL", help="An .onnx file.", show_default=False)]
RunnablePath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="An .onnx or .ort file, or a package.", show_default=False)
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="INPUT=1x3x640x640",
        help="The shape of an input; its name may be left out if it is the only one. May be repeated.",
    ),
]
Dims = Annotated[
    list[str] | None, typer.Option("--dim", metavar="NAME=N", help="A number for a free dimension. May be repeated.")
]
Arrays = Annotated[
    Path | None,
    typer.Option("--inputs", metavar="FEEDS.npz", help="Feed these arrays; without them inputs are generated."),
]
ArrayFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--inputs",
        metavar="FEEDS.npz",
        help="Feed these arrays; without them inputs are generated. May be repeated: plans suit all of them.",
    ),
]
Ranges = Annotated[
    list[str] | None,
    typer.Option("--range", metavar="INPUT=LOW:HIGH", help="What a generated input may hold. May be repeated."),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, help="Generated inputs depend on this alone.")]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        autocompletion=complete_mode,
        help="How to load and run: stock, tuned, planned, or what the file is for (docs/serving.md).  "
        "[default: stock; a package's own]",
    ),
]
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
Device = Annotated[
    str,
    typer.Option(
        metavar="DEVICE",
        autocompletion=complete_device,
        help="Where it runs: cpu, cuda, or cuda:1 for the second GPU (docs/serving.md).",
    ),
]
OnlyCpu = Annotated[str, typer.Option("--device", metavar="DEVICE", hidden=True, help="Only cpu: others are refused.")]
"""For verbs that say nothing about other devices: asked for, they are refused in words (`only_on_cpu`)."""
MemoryLimit = Annotated[str | None, typer.Option(metavar="SIZE", help="Run with no more memory than this (512MiB …).")]


def time_limit(**more: Any) -> Any:
    """The option of that name."""
    return typer.Option("--time-limit", metavar="SECONDS", help="How long all of it may take.", **more)


TimeLimit = Annotated[float, time_limit()]
NoTimeLimit = Annotated[float | None, time_limit()]
"""For verbs that are done soon: there is none unless it is given."""
Alignment = Annotated[
    int | None, typer.Option(metavar="BYTES", help="Offsets are multiples of this: 64 for models, 1 for a CSV.")
]


def names(*groups: type) -> list[str]:
    """What the options in these groups are called as parameters."""
    return [each.name for group in groups for each in fields(group)]


def first_given(context: typer.Context, parameters: Iterable[str]) -> str | None:
    """The first of these options that was typed, also if with the value it has anyway; None if none was."""
    for name in parameters:
        given = context.get_parameter_source(name)
        if given is not None and given.name == "COMMANDLINE":
            return str(next(each for each in context.command.params if each.name == name).opts[0])
    return None


def only_on_cpu(device: str, why: str) -> None:
    """Refuse another device, for a verb that would say nothing about it."""
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.measurement.device import device_number  # noqa: PLC0415

    if device_number(device) is not None:
        raise UsageError(why, hint=f"onnxmem compare MODEL MODEL+planned --device {device}")


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What a model is fed when it runs."""

    shape: Shapes = None
    dim: Dims = None
    inputs: Arrays = None
    input_range: Ranges = None
    seed: Seed = 0

    def keywords(self, model: Path) -> dict[str, Any]:
        """As the library's functions take it."""
        return {
            "shapes": parse.parse_shapes(self.shape, model),
            "dims": parse.parse_dims(self.dim),
            "inputs": self.inputs,
            "ranges": parse.parse_ranges(self.input_range),
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class Feeds(Feed):
    """What a model is fed when it runs several times."""

    inputs: ArrayFiles = None  # type: ignore[assignment] # several, where others take one


@dataclass(frozen=True, kw_only=True)
class Tiles:
    """Whether parts of the graph are computed piece by piece, and how far that may go."""

    tile: Annotated[
        bool, typer.Option("--tile", help="Compute parts of the graph in stripes or blocks, where that takes less.")
    ] = False
    extra_work: Annotated[
        str | None,
        typer.Option(
            metavar="PART",
            help="How much more may be computed for it: 10% if there is no budget, else as much as it takes.",
            show_default=False,
        ),
    ] = None

    def part(self) -> float | None:
        """The extra work as a number."""
        return parse.parse_part(self.extra_work)

    def allowed(self, capacity: int | None = None) -> float | None:
        """How much more may be computed; None: no tiles are asked for."""
        from onnxmem.estimation.tiling import checked_extra_work  # noqa: PLC0415

        return checked_extra_work(tile=self.tile, extra_work=self.part(), capacity=capacity)


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Which graph of a model, at which sizes, in which order, under which rules."""

    shape: Shapes = None
    dim: Dims = None
    inputs: Annotated[
        Path | None, typer.Option("--inputs", metavar="FEEDS.npz", help="Take the shapes of these arrays.")
    ] = None
    view: Annotated[
        str | None,
        typer.Option(
            metavar="raw|optimized",
            autocompletion=_complete(lambda: ("raw", "optimized")),
            help="The graph as in the file, or as ONNX Runtime would run it (the default, if it can load it).",
            show_default=False,
        ),
    ] = None
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            autocompletion=_complete(lambda: ("disabled", "basic", "extended", "layout", "all")),
            help="Optimization level: disabled, basic, extended, layout or all.",
        ),
    ] = "all"
    fix_dims: Annotated[
        bool,
        typer.Option(
            "--fix-dims", help="Optimize for exactly these dimensions, as with free-dimension overrides in the session."
        ),
    ] = False
    order: Annotated[
        str,
        typer.Option(
            metavar="ORDER",
            autocompletion=complete_order,
            help="Execution order: file, ort-default, ort-priority, depth-first, breadth-first, greedy or best.",
        ),
    ] = "ort-default"
    alias: Annotated[
        bool, typer.Option("--alias/--no-alias", help="Let Reshape, Squeeze, Identity … share their input's memory.")
    ] = True
    in_place: Annotated[
        bool, typer.Option("--in-place/--no-in-place", help="Let Relu, Softmax … overwrite an input nobody else needs.")
    ] = True
    count_inputs: Annotated[
        bool, typer.Option("--count-inputs", help="Count the tensors that the caller feeds, too.")
    ] = False

    def question(self, model: Path, alignment: int | None, time_limit: float, seed: int = 0) -> Question:
        """As the library's question."""
        from onnxmem.model.feeds_file import read_feed_shapes, with_given_shapes  # noqa: PLC0415
        from onnxmem.schedule.scheduled import ALIGNMENT, Question  # noqa: PLC0415
        from onnxmem.schedule.storages import Rules  # noqa: PLC0415

        shapes = parse.parse_shapes(self.shape, model)
        if self.inputs:
            shapes = with_given_shapes(self.inputs, read_feed_shapes(self.inputs), shapes)
        return Question(
            shapes=shapes,
            dims=parse.parse_dims(self.dim),
            view=self.view,
            level=self.level,
            fix_dims=self.fix_dims,
            order=self.order,
            rules=Rules(alias=self.alias, in_place=self.in_place, inputs=self.count_inputs),
            alignment=ALIGNMENT if alignment is None else alignment,
            time_limit=time_limit,
            seed=seed,
        )
