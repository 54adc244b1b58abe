"""`onnxmem sweep`: many models, sizes and modes at once, kept in one file. Its own verbs read that file."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from onnxmem.cli import options, parse
from onnxmem.cli.console import progress, tell
from onnxmem.cli.groups import spread
from onnxmem.cli.output import DrawnOutput, Output, check_writable
from onnxmem.errors import UsageError
from onnxmem.progress import OnProgress, Progress
from onnxmem.units import format_count

if TYPE_CHECKING:
    from onnxmem.sweeping.read import Filter
    from onnxmem.sweeping.sweep import Where

# Where nobody looks at a bar, a line now and then tells enough.
_SILENCE, _PATIENCE = 10.0, 2.0
_EXPORTS = (".csv", ".parquet", ".html")
_RUN = "run"

Store = Annotated[Path, typer.Argument(metavar="FILE.sqlite", help="What a sweep has written.", show_default=False)]


class SweepGroup(TyperGroup):
    """Without a verb of its own, what follows is what to sweep."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the verb before models, a specification or options."""
        known = args and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if not args or known else [_RUN, *args])


sweep = typer.Typer(
    name="sweep",
    cls=SweepGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Sweep many models, sizes and modes, into one file.\n\n"
    "onnxmem sweep SPEC.toml, or onnxmem sweep MODEL … with options, is the same as onnxmem sweep run. The file is a "
    "history, too: onnxmem check --history and onnxmem history read it.",
)


@dataclass(frozen=True, kw_only=True)
class Product:
    """What is asked of the models; a specification says it itself."""

    verbs: Annotated[
        str | None,
        typer.Option(
            metavar="VERB,…",
            help="What to ask: estimate, plan, measure, release, share, compare.",
            show_default="measure",
        ),
    ] = None
    modes: Annotated[
        str | None,
        typer.Option(
            metavar="MODE,…", help="How to load and run: stock, tuned, planned …", show_default="stock; a package's own"
        ),
    ] = None
    dim: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N,…", help="Numbers for a free dimension. May be repeated: all combinations."),
    ] = None
    shape: Annotated[
        list[str] | None,
        typer.Option(
            metavar="INPUT=1x3x640x640[,…]",
            help="The shapes of inputs; the name may be left out if there is only one. May be repeated: one size each.",
        ),
    ] = None
    inputs: Annotated[
        list[Path] | None,
        typer.Option(metavar="FEEDS.npz", help="Feed these arrays. May be repeated: one size each."),
    ] = None
    input_range: options.Ranges = None
    seed: Annotated[int | None, typer.Option(metavar="N", min=0, help="Generated inputs depend on it.")] = None
    option: options.Settings = None
    threads: options.Threads = None
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE",
            autocompletion=options.complete_device,
            help="Where models run: cpu, cuda, or cuda:1 for the second GPU.",
            show_default="cpu",
        ),
    ] = None
    runs: Annotated[int | None, typer.Option(metavar="N", min=1, help="Steady runs.", show_default="5")] = None
    repeat: Annotated[
        int | None, typer.Option(metavar="K", min=1, help="Measure in so many processes.", show_default="1")
    ] = None
    workers: Annotated[
        str | None,
        typer.Option(metavar="N,…", help="How many processes share, for the verb share.", show_default="1,2"),
    ] = None
    memory_limit: options.MemoryLimit = None
    cell_time_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="How long one cell may take.", show_default="by its verb")
    ] = None

    def given(self) -> dict[str, Any]:
        """As the library takes it: only what was given."""
        found: dict[str, Any] = {name: getattr(self, name) for name in ("seed", "threads", "device", "runs", "repeat")}
        found["time_limit"] = self.cell_time_limit
        found["memory_limit"] = parse.parse_size(self.memory_limit)
        found["verbs"] = _words(self.verbs)
        found["modes"] = _words(self.modes)
        found["workers"] = tuple(parse.parse_counts(self.workers)) if self.workers else None
        found["ranges"] = parse.parse_ranges(self.input_range) or None
        found["inputs"] = tuple(self.inputs) if self.inputs else None
        found["shapes"] = tuple(map(_shapes, self.shape)) if self.shape else None
        found["dims"] = dict(map(_numbers, self.dim)) if self.dim else None
        settings = parse.parse_options(self.option)
        found |= {name: value or None for name, value in settings.items()}
        return {name: value for name, value in found.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where cells are worked out."""

    engine: Annotated[
        str, typer.Option(metavar="embedded|ray", help="This machine, or a Ray cluster (pip install ray).")
    ] = "embedded"
    address: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT", help="The cluster (auto: the one of this machine); without it, Ray is started here."
        ),
    ] = None
    parallel_measurements: Annotated[
        int, typer.Option(metavar="N", min=1, help="Measurements at a time on one machine, each with its own cores.")
    ] = 1
    retries: Annotated[
        int, typer.Option(metavar="N", min=0, help="Try a cell so often again whose worker or node was lost.")
    ] = 2
    each_processor: Annotated[
        bool, typer.Option("--each-processor", help="Ask every kind of processor of the cluster, not just any.")
    ] = False

    def where(self) -> Where:
        """As the library takes it."""
        from onnxmem.sweeping.sweep import Where  # noqa: PLC0415

        return Where(
            engine=self.engine,
            address=self.address,
            parallel=self.parallel_measurements,
            retries=self.retries,
            each_processor=self.each_processor,
        )


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Which cells of a store."""

    model: Annotated[str | None, typer.Option(metavar="NAME", help="Only this model.")] = None
    verb: Annotated[str | None, typer.Option(metavar="VERB", help="Only this verb.")] = None
    mode: options.Mode = None
    every: Annotated[
        bool, typer.Option("--all", help="Cells of earlier sweeps, too, that the last did not ask for.")
    ] = False

    def filter(self) -> Filter:
        """As the library takes it."""
        from onnxmem.sweeping.read import Filter  # noqa: PLC0415

        return Filter(self.every, self.model, self.verb, self.mode)


def run(
    models: Annotated[
        list[str],
        typer.Argument(metavar="SPEC.toml|MODEL…", help="A specification, or models and patterns.", show_default=False),
    ],
    product: Product,
    place: Place,
    output: DrawnOutput,
    store: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.sqlite",
            help="Where results are kept; made if there is none.",
            show_default="what the specification says, or sweep.sqlite",
        ),
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed cells once more.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say which cells there are, and how long.")] = False,
) -> None:
    """Work out all cells that are not finished yet.

    The product of models, sizes, modes and verbs, each by itself in a fresh process. A sweep that was ended goes on
    where it was when the same command is given again. Exit code 3 if a cell failed.
    """
    from onnxmem.sweeping.read import read_status  # noqa: PLC0415
    from onnxmem.sweeping.sweep import make_spec, plan_sweep, run_sweep  # noqa: PLC0415

    given = product.given()
    if given and any(model.endswith(".toml") for model in models):
        name = {"dims": "dim", "shapes": "shape", "ranges": "range", "config": "option", "options": "option",
                "time_limit": "cell-time-limit"}.get(next(iter(given)), next(iter(given)))  # fmt: skip
        raise UsageError(f"--{name} is for models that are typed", hint="write it into the specification")
    output.check(*map(Path, models), store)
    where = place.where()
    with progress("sweeping") as step:
        shown = step if sys.stderr.isatty() else _now_and_then(step)
        spec = make_spec(models, store, given)
        if dry_run:
            plan = plan_sweep(spec, where, shown)
        else:
            try:
                result = run_sweep(spec, where, retry_failed=retry_failed, on_progress=shown)
            except KeyboardInterrupt:
                if spec.store.exists():
                    status = read_status(spec.store).status
                    tell(f"{status.finished + status.failed:,} of {status.cells:,} cells are done and kept in "
                         f"'{spec.store}'", "the same command goes on from here")  # fmt: skip
                raise
    if dry_run:
        output.show(plan)
        return
    output.show(result)
    if result.status.failed:
        raise typer.Exit(3)


def status(file: Store, output: Output) -> None:
    """Tell how far the last sweep is, also while it is going on."""
    from onnxmem.sweeping.read import read_status  # noqa: PLC0415

    output.check(file)
    output.show(read_status(file))


def show(
    file: Store,
    chosen: Chosen,
    output: DrawnOutput,
    tolerance: Annotated[
        str, typer.Option(metavar="5%|4MiB", help="More or less than before by more than this counts as changed.")
    ] = "5%",
) -> None:
    """Show what the last sweep found.

    Models by sizes, memory against latency, failures, and what has changed since the sweep before.
    """
    from onnxmem.sweeping.read import read_sweep  # noqa: PLC0415

    output.check(file)
    output.show(
        read_sweep(
            file,
            all_sweeps=chosen.every,
            model=chosen.model,
            verb=chosen.verb,
            mode=chosen.mode,
            tolerance=tolerance,
        )
    )


def export(
    file: Store,
    chosen: Chosen,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE.csv|.parquet|.html", help="Where to write.")],
) -> None:
    """Export all cells as a table, or the report as a page."""
    from onnxmem.report.build import make_report  # noqa: PLC0415
    from onnxmem.report.save import save_report  # noqa: PLC0415
    from onnxmem.sweeping.export import check_export, export_rows  # noqa: PLC0415
    from onnxmem.sweeping.read import read_sweep  # noqa: PLC0415

    check_writable(output, _EXPORTS, (file,))
    check_export(output)
    with progress(f"writing {output.name}"):
        if output.suffix.lower() == ".html":
            found = read_sweep(file, all_sweeps=chosen.every, model=chosen.model, verb=chosen.verb, mode=chosen.mode)
            save_report(make_report([found]), output)
        else:
            count = export_rows(file, chosen.filter(), output)
    if output.suffix.lower() != ".html":
        tell(f"{format_count(count, 'cell')} in '{output}'")


for _verb in (run, status, show, export):
    sweep.command()(spread(_verb))


def _now_and_then(step: OnProgress) -> OnProgress:
    last = time.monotonic() - _SILENCE + _PATIENCE

    def told(now: Progress) -> None:
        nonlocal last
        if time.monotonic() - last >= _SILENCE:
            last = time.monotonic()
            counted = f"{now.done:,} of {now.total:,}, " if now.total else ""
            step(now._replace(stage=f"{counted}{now.stage}"))

    return told


def _words(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(word.strip() for word in text.split(",") if word.strip())


def _numbers(text: str) -> tuple[str, tuple[int, ...]]:
    name, separator, numbers = text.rpartition("=")
    words = numbers.split(",")
    if not separator or not name or not all(word.strip().isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"'{text}' does not say which numbers a dimension takes", hint="write it as batch=1,4,16")
    return name, tuple(int(word) for word in words)


def _shapes(text: str) -> Any:
    """`a=1x3,b=1x4`, or `1x3` for the only input."""
    from onnxmem.model.bindings import parse_shapes  # noqa: PLC0415

    return text if "=" not in text and text.replace("x", "").replace("×", "").isdecimal() else parse_shapes(text)
