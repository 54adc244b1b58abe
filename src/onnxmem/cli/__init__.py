"""The command line: one verb per file. This one only gathers them and turns errors into one sentence and a code."""

from __future__ import annotations

import sys
from importlib.metadata import version

import typer

from onnxmem.cli import app as dashboard
from onnxmem.cli import (
    check,
    compare,
    convert,
    demo,
    estimate,
    explain,
    fit,
    history,
    measure,
    pack,
    plan,
    release,
    report,
    share,
    sweep,
    trace,
    zoo,
)
from onnxmem.cli.console import tell
from onnxmem.cli.groups import end_on_signals, interruptible, spread
from onnxmem.cli.streams import is_full, lead_nowhere, open_closed
from onnxmem.errors import OnnxmemError, UsageError

app = typer.Typer(
    name="onnxmem",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

# In the order of work, which is the order of `--help`.
for verb in (
    demo.demo,
    estimate.estimate,
    plan.plan,
    fit.fit,
    measure.measure,
    explain.explain,
    trace.trace,
    release.release,
    compare.compare,
    pack.pack,
    convert.convert,
    share.share,
    check.check,
    history.history,
    sweep.sweep,
    report.report,
    dashboard.app,
    zoo.zoo,
):
    if isinstance(verb, typer.Typer):
        app.add_typer(verb)
    else:
        app.command()(spread(verb))


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
    open_closed()
    arguments = [_renamed(argument) for argument in sys.argv[1:] if argument != "--debug"]
    debug = len(arguments) < len(sys.argv) - 1
    end_on_signals()
    try:
        with interruptible(None):
            _run(arguments)
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is wrong.
        lead_nowhere(sys.stdout)
        sys.exit(0)
    except Exception as error:
        if debug:
            raise
        if is_full(error):
            lead_nowhere(sys.stdout)
            error = UsageError("cannot write the output: the disk is full", hint="write it where there is room")
        if isinstance(error, OnnxmemError):
            tell(str(error), error.hint)
            sys.exit(error.exit_code)
        if isinstance(error, RecursionError):
            tell("the model is nested too deeply")
        else:
            tell(f"unexpected {type(error).__name__}: {error}", "run it again with --debug and report what it shows")
        sys.exit(3)


def _run(arguments: list[str]) -> None:
    try:
        app(arguments, standalone_mode=True)
    except SystemExit as ended:
        # Before and after a verb Typer takes interrupts for itself: all with the code of Ctrl-C, and without a word.
        if ended.__context__ and isinstance(ended.__context__.__cause__, KeyboardInterrupt):
            raise ended.__context__.__cause__ from None
        raise


def _renamed(argument: str) -> str:
    """`--timeout` was what `--time-limit` is now."""
    flag, equals, value = argument.partition("=")
    return f"--time-limit{equals}{value}" if flag == "--timeout" else argument
