"""Write docs/cli.md from the commands themselves: python scripts/cli_reference.py"""

from __future__ import annotations

from pathlib import Path

import typer.main

from onnxmem.cli import app
from onnxmem.files import write_text

HEADER = """# The command line

Made by `scripts/cli_reference.py` from the commands themselves. Every verb prints a readable table, or one JSON
document with `--json`. Progress goes to stderr. `--debug` after any verb shows where an error comes from; `NO_COLOR`
is honoured.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | a budget or capacity was not met |
| 2 | wrong usage: an unknown name, a bad number, a file that is not there |
| 3 | the model, or its run, failed |
| 130 | interrupted with Ctrl-C |
"""


def reference() -> str:
    """All verbs with their options."""
    parts = [HEADER]
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for name, command in sorted(commands.items()):
        arguments = " ".join(p.metavar or p.name.upper() for p in command.params if p.param_type_name == "argument")
        parts.append(f"\n## onnxmem {name}\n\n    onnxmem {name} {arguments} [OPTIONS]\n\n{command.help.strip()}\n")
        parts.append("\n| option | meaning | default |\n|---|---|---|\n")
        for parameter in command.params:
            if parameter.param_type_name != "option":
                continue
            names = ", ".join(f"`{opt}`" for opt in (*parameter.opts, *parameter.secondary_opts))
            value = f" `{parameter.metavar}`" if parameter.metavar else ""
            default = "" if parameter.default in (None, False, (), []) else f"`{parameter.default}`"
            parts.append(f"| {names}{value.replace('|', '&#124;')} | {parameter.help} | {default} |\n")
    return "".join(parts)


if __name__ == "__main__":
    write_text(Path(__file__).parents[1] / "docs" / "cli.md", reference())
