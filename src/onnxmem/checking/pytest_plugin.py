"""The plugin for pytest, which finds it by itself: a marker for tests, and a fixture for model files.

    @pytest.mark.onnx_memory(limit="300MiB")
    def test_inference() -> None: ...               # fails if the process grows by more while its body runs

    def test_model(onnx_memory: OnnxMemory) -> None:
        onnx_memory.check("model.onnx", "300MiB", mode="planned")      # measured in a fresh process

It is loaded with every run of pytest, so nothing else is until a test asks for it.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import os

    from onnxmem.checking.checked import Checked

MARKER = "onnx_memory"


def pytest_configure(config: pytest.Config) -> None:
    """Tell pytest about the marker."""
    about = "fail if the process's memory (RSS) grows by more than this while the test's body runs"
    config.addinivalue_line("markers", f'{MARKER}(limit="300MiB"): {about}.')


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Watch the body of a marked test."""
    marker = item.get_closest_marker(MARKER)
    if marker is None:
        return (yield)
    limit = _limit(marker)
    from onnxmem.checking.watching import Watch  # noqa: PLC0415
    from onnxmem.unknown import Unknown  # noqa: PLC0415

    with Watch() as watch:
        result = yield
    if isinstance(watch.growth, Unknown):
        item.warn(pytest.PytestWarning(f"{MARKER}: the growth is not known: {watch.growth.reason}"))
    else:
        item.user_properties += [("onnx_memory_growth_bytes", watch.growth), ("onnx_memory_limit_bytes", limit)]
    if said := watch.excess(limit):
        pytest.fail(said, pytrace=False)
    return result


def _limit(marker: pytest.Mark) -> int:
    """The limit of a marker, which takes nothing else."""
    given = {**dict(zip(("limit",), marker.args, strict=False)), **marker.kwargs}
    if len(marker.args) > 1 or given.keys() != {"limit"}:
        pytest.fail(f'{MARKER} takes a limit and nothing else: {MARKER}(limit="300MiB")', pytrace=False)
    return _size(given["limit"])


def _size(limit: int | str) -> int:
    from onnxmem.errors import UsageError  # noqa: PLC0415
    from onnxmem.units import parse_bytes  # noqa: PLC0415

    try:
        return limit if isinstance(limit, int) else parse_bytes(str(limit))
    except UsageError as error:
        said = f"{MARKER}: {error}; {error.hint}"
    pytest.fail(said, pytrace=False)


class _Block:
    """A block of code that may not grow by more than its limit."""

    def __init__(self, limit: int) -> None:
        from onnxmem.checking.watching import Watch  # noqa: PLC0415

        self._limit, self._watch = limit, Watch()

    def __enter__(self) -> None:
        self._watch.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        __tracebackhide__ = True
        self._watch.__exit__(kind, error, None)
        if error is None and (said := self._watch.excess(self._limit)):
            pytest.fail(said)


class OnnxMemory:
    """What the fixture `onnx_memory` is."""

    def check(self, model: str | os.PathLike[str], limit: int | str | None = None, **options: Any) -> Checked:
        """Fail the test unless this model file keeps within the limit, in a fresh process; `options` as of `check`."""
        __tracebackhide__ = True
        from onnxmem.checking.check import check  # noqa: PLC0415

        (checked,) = check(model, limit, **options).checks
        if checked.verdict != "ok":
            pytest.fail("\n".join(part for part in (checked.sentence, checked.hint) if part))
        return checked

    def limit(self, limit: int | str) -> _Block:
        """Fail the test if this process grows by more than the limit inside the block: `with onnx_memory.limit(…):`."""
        return _Block(_size(limit))


@pytest.fixture(name=MARKER)
def onnx_memory_fixture() -> OnnxMemory:
    """Check model files and blocks of code: `onnx_memory.check("model.onnx", "300MiB")`."""
    return OnnxMemory()
