"""Write docs/cli.md from the commands themselves: python -m scripts.cli_reference"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import typer.main

from onnxmem.cli import app
from onnxmem.files import write_text

PAGE = Path(__file__).parents[1] / "docs" / "cli.md"

HEADER = """# The command line

Made by `python -m scripts.cli_reference` from the commands themselves, in the order of work. Every verb prints a
readable answer, or one JSON document with `--json`. Progress goes to stderr. `--debug` after any verb shows where an
error comes from; `NO_COLOR` is honoured. `onnxmem --install-completion` lets the shell complete verbs, options and the
names of modes, strategies, orders and built-in models.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a budget or capacity was not met |
| 2 | wrong usage: an unknown name, a bad number, a file that is not there or cannot be written, a missing package |
| 3 | the model, or its run, failed |
| 129, 130, 143 | the terminal is gone, interrupted with Ctrl-C, ended by SIGTERM |
"""


def reference() -> str:
    """All verbs with their options."""
    commands = dict(_commands(typer.main.get_command(app)))
    return "".join([HEADER, *(_section(name, command) for name, command in commands.items())])


def _commands(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """All verbs by their names, and after each those of its own."""
    for name, command in group.commands.items():
        yield f"{before}{name}", command
        if hasattr(command, "commands"):
            yield from _commands(command, f"{before}{name} ")


def _section(name: str, command: Any) -> str:
    arguments = " ".join(p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument")
    own = " ".join(("[", " | ".join(command.commands), "]")) if hasattr(command, "commands") else ""
    usage = " ".join(filter(None, ("onnxmem", name, own, arguments, "[OPTIONS]")))
    rows = [_row(each) for each in command.params if each.param_type_name == "option"]
    table = ["\n| option | meaning | default |\n|---|---|---|\n", *rows] if rows else []
    return "".join([f"\n## onnxmem {name}\n\n    {usage}\n\n{_paragraphs(command.help)}\n", *table])


def _paragraphs(text: str) -> str:
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.strip().split("\n\n"))


def _row(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    value = f" `{option.metavar}`" if option.metavar else ""
    default = "" if option.default in (None, False, (), []) else f"`{option.default}`"
    return f"| {names}{value.replace('|', '&#124;')} | {option.help} | {default} |\n"


if __name__ == "__main__":
    write_text(PAGE, reference())
