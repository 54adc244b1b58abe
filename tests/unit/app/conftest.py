"""Pages that are drawn without a server leave the tests' process as it was."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def as_before(main_module: None) -> None:
    """For all of them."""
