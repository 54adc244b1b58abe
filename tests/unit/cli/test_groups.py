"""Options in groups: what Typer sees, and what the verb gets; and how a verb is ended from outside."""

from __future__ import annotations

import inspect
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from onnxmem import cli
from onnxmem.cli import groups
from onnxmem.cli.groups import Interrupted, end_on_signals, interruptible, spread


@dataclass(frozen=True, kw_only=True)
class Group:
    size: Annotated[int, typer.Option("--size", help="How large.")] = 3
    name: str | None = None


@dataclass(frozen=True, kw_only=True)
class Larger(Group):
    size: Annotated[int, typer.Option("--extent")] = 4
    flag: bool = False


def test_fields_are_options_and_arrive_as_the_record() -> None:
    received: list[object] = []

    def verb(path: str, group: Larger, last: int = 0) -> None:
        """Do it."""
        received.append((path, group, last))

    app = typer.Typer()
    app.command()(spread(verb))
    assert CliRunner().invoke(app, ["p"]).exit_code == 0
    assert CliRunner().invoke(app, ["p", "--extent", "7", "--name", "n", "--flag", "--last", "2"]).exit_code == 0
    assert CliRunner().invoke(app, ["p", "--size", "7"]).exit_code == 2
    assert received == [("p", Larger(), 0), ("p", Larger(size=7, name="n", flag=True), 2)]
    assert list(inspect.signature(spread(verb)).parameters) == ["path", "size", "name", "flag", "last", "time_limit"]


@pytest.fixture
def handlers() -> Iterator[None]:
    """As in a new process; those of this one are its own again afterwards."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(
    ("number", "code", "said"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "ended by SIGTERM"),
        (signal.SIGHUP, 129, "ended by SIGHUP"),
    ],
)
def test_a_signal_beside_a_verb_is_one_sentence_too(
    number: int, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes while Typer reads what was typed, or after the verb."""
    monkeypatch.setattr(typer, "echo", lambda _: signal.raise_signal(number))
    monkeypatch.setattr(sys, "argv", ["onnxmem", "--version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code and capsys.readouterr().err == f"onnxmem: {said}\n"


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_keep_from_clearing_up(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_AT_ONCE", 3600.0)
    end_on_signals()
    cleared = False
    with pytest.raises(Interrupted) as ended, interruptible(None):
        try:
            signal.raise_signal(first)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                signal.raise_signal(number)
            cleared = True
    assert cleared and ended.value.exit_code == 128 + first


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGALRM, 3)])
def test_a_signal_while_a_native_module_is_loaded_is_a_signal(number: int, code: int) -> None:
    """Such a module says that it could not be loaded, and no more."""
    end_on_signals()
    with pytest.raises(Interrupted) as ended, interruptible(60):
        try:
            signal.raise_signal(number)
        except KeyboardInterrupt as cause:
            raise ImportError("initialization failed") from cause
    assert ended.value.exit_code == code
    with pytest.raises(ImportError, match="no such module"), interruptible(60):
        raise ImportError("no such module")


@pytest.mark.usefixtures("handlers")
def test_whoever_asks_again_later_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "_AT_ONCE", 0.0)
    end_on_signals()
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("handlers")
def test_a_terminal_that_is_closed_is_ignored_under_nohup() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    end_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
