"""Options in groups: what Typer sees, and what the verb gets."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from onnxmem.cli.groups import spread


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
