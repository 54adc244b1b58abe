"""Errors carry their exit code, and what is missing can be installed as the hint says."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from onnxmem.errors import EXTRAS, MissingDependency, ModelError, RuntimeUnsupported, check_extra, missing_extra

ROOT = Path(__file__).parents[2]


def test_the_hint_names_the_packages_of_the_extra() -> None:
    """A checkout has no `onnxmem[report]` to install."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {extra: [re.split("[<>=]", package)[0] for package in packages] for extra, packages in extras.items()}
    assert {extra: list(packages.values()) for extra, packages in EXTRAS.items()} == named
    error = missing_extra("altair", "report")
    assert error.hint == "pip install altair jinja2 vl-convert-python"
    assert isinstance(error, RuntimeUnsupported) and error.exit_code == 2


def test_a_missing_package_is_found_before_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    check_extra("report")
    monkeypatch.setitem(EXTRAS, "report", {"altair": "altair", "no_such_module": "no-such-package"})
    with pytest.raises(MissingDependency, match="'no-such-package', which is not installed"):
        check_extra("report")


def test_a_message_is_one_line_whatever_a_file_holds() -> None:
    error = ModelError("no tensor 'a\x1b[31m\n\tb\u202e'", hint="see\x00")
    assert (str(error), error.hint) == ("no tensor 'a�[31m  b�'", "see�")
