"""What many tests need."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks import real_models

# Started in the background of a shell, tests inherit that Ctrl-C is ignored; so would the processes they press it in.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """The path of a real model by its key. Where it cannot be fetched the test is skipped, and says why."""

    def fetch(key: str) -> Path:
        try:
            return real_models.fetch(key)
        except real_models.FetchError as error:
            pytest.skip(str(error))

    return fetch
