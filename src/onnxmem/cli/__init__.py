"""The command line: one verb per file. This one only gathers them and turns errors into one sentence and a code."""

from __future__ import annotations

import os
import sys
from importlib.metadata import version

import typer

from onnxmem.cli import compare, convert, demo, estimate, measure, pack, plan, release, report, share, trace
from onnxmem.errors import OnnxmemError, UsageError

app = typer.Typer(
    name="onnxmem",
    help="How much memory an ONNX model takes, why, and how to make it take less.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for verb in (
    compare.compare,
    convert.convert,
    demo.demo,
    estimate.estimate,
    measure.measure,
    pack.pack,
    plan.plan,
    release.release,
    report.report,
    share.share,
    trace.trace,
):
    app.command()(verb)


@app.callback(invoke_without_command=True)
def about(
    show_version: bool = typer.Option(False, "--version", help="Print the version and exit."),
    debug: bool = typer.Option(False, "--debug", help="Show where an error comes from. Works after any verb."),
) -> None:
    """How much memory an ONNX model takes, why, and how to make it take less."""
    if show_version:
        typer.echo(f"onnxmem {version('onnxmem')}")
        raise typer.Exit


def main() -> None:
    """The entry point: exit 0 done, 1 a budget was not met, 2 wrong usage, 3 the model or its run failed."""
    arguments = [argument for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    try:
        app(arguments, standalone_mode=True)
    except OnnxmemError as error:
        if debug:
            raise
        _complain(str(error), error.hint)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        _complain("interrupted", "")
        sys.exit(130)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong, but Python would complain while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except RecursionError:
        if debug:
            raise
        _complain("the model is nested too deeply", "")
        sys.exit(3)
    except Exception as error:
        if debug:
            raise
        _complain(f"unexpected {type(error).__name__}: {error}", "run it again with --debug and report what it shows")
        sys.exit(3)


def _complain(message: str, hint: str) -> None:
    print(f"onnxmem: {message}", file=sys.stderr)  # noqa: T201
    if hint:
        print(f"hint: {hint}", file=sys.stderr)  # noqa: T201


__all__ = ["UsageError", "app", "main"]
