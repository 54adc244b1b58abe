"""Pages that are drawn without a server leave the tests' process as it was."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def main_module() -> Iterator[None]:
    """The runner of pages puts the page in the place of the main module, which fresh processes would look for."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
