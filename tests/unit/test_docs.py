"""The documentation and the command line say the same."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import typer.main

from campaigns.files import READERS
from onnxmem.cli import app
from scripts import api_reference, cli_reference

ROOT = Path(__file__).parents[2]
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_verb_has_a_transcript_in_the_readme(verb: str) -> None:
    assert f"$ onnxmem {verb}" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("page", [cli_reference, api_reference])
def test_the_reference_is_what_the_code_says(page: ModuleType) -> None:
    assert page.PAGE.read_text() == page.reference(), f"it is stale: python -m {page.__name__}"


@pytest.mark.parametrize("verb", sorted(COMMANDS))
def test_every_option_is_explained(verb: str) -> None:
    own = getattr(COMMANDS[verb], "commands", {})
    for parameter in (p for command in (COMMANDS[verb], *own.values()) for p in command.params):
        assert parameter.param_type_name == "argument" or parameter.help, f"{verb} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("page", ["layout.md", "memory.md", "cli.md", "serving.md"])
def test_pages_that_the_readme_promises_exist(page: str) -> None:
    assert f"docs/{page}" in (ROOT / "README.md").read_text()
    assert (ROOT / "docs" / page).is_file()


def test_every_room_is_on_the_layout_page() -> None:
    layout = (ROOT / "docs" / "layout.md").read_text()
    for room in (ROOT / "src" / "onnxmem").iterdir():
        if room.name not in ("__init__.py", "__init__.pyi", "__main__.py", "__pycache__", "py.typed"):
            assert f"`{room.name}{'/' if room.is_dir() else ''}`" in layout, (
                f"docs/layout.md does not mention {room.name}"
            )


def test_the_readme_names_no_file_that_is_not_there() -> None:
    text = (ROOT / "README.md").read_text()
    for target in re.findall(r"\]\(((?!http)[^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def test_every_promise_of_the_threat_model_has_a_test_that_is_there() -> None:
    page = (ROOT / "docs" / "threat_model.md").read_text()
    promises = [line for line in page.splitlines() if line.startswith("| ") and "held by" not in line]
    assert len(promises) > 10
    for promise in promises:
        named = re.findall(r"(?:campaigns? `|/)?(test_\w+\.py)(?:::(test_\w+))?", promise)
        assert named, promise
        for file, test in named:
            found = [path.read_text() for path in (ROOT / "tests").rglob(file)]
            assert any(f"def {test}" in text for text in found), f"{file}::{test} is not there"
    for readers in re.findall(r"campaigns? ((?:`\w+`(?:, )?)+)", page):
        assert set(re.findall(r"\w+", readers)) <= set(READERS), readers
