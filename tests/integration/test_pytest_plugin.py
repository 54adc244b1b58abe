"""The plugin for pytest: a marker and a fixture, in test files as users write them."""

from __future__ import annotations

import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

MODULE = "onnxmem.checking.pytest_plugin"
# Where the package is only on the path, and not installed with its entry points, the plugin is named.
NAMED = [] if any(point.value == MODULE for point in entry_points(group="pytest11")) else ["-p", MODULE]


def outcomes(pytester: pytest.Pytester, code: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(code)
    return pytester.runpytest_subprocess(*NAMED, "--strict-markers", "-p", "no:xdist", *arguments)


def test_the_package_registers_it() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {"onnxmem": MODULE}


def test_a_test_that_grows_too_much_fails(pytester: pytest.Pytester) -> None:
    result = outcomes(
        pytester,
        """
        import pytest

        @pytest.mark.onnx_memory(limit="100MiB")
        def test_small():
            bytearray(20 * 2**20)

        @pytest.mark.onnx_memory("10MiB")
        def test_large():
            assert len(bytearray(40 * 2**20)) > 0

        @pytest.mark.onnx_memory("10MiB")
        def test_after_it():
            pass

        @pytest.mark.onnx_memory("10MiB")
        def test_wrong_anyway():
            keep = bytearray(40 * 2**20)
            raise ValueError("its own error")

        def test_unmarked():
            assert len(bytearray(40 * 2**20)) > 0
        """,
        "--junitxml=j.xml",
    )
    result.assert_outcomes(passed=3, failed=2)
    result.stdout.fnmatch_lines(
        ["*memory grew by * MiB, and 10.0 MiB are allowed: * MiB too much*", "*it was all given back*"]
    )
    result.stdout.fnmatch_lines(["*ValueError: its own error*"])
    assert 'name="onnx_memory_limit_bytes" value="104857600"' in (pytester.path / "j.xml").read_text()


def test_a_session_in_the_test_counts(pytester: pytest.Pytester, unet: Path) -> None:
    code = """
        import numpy, onnxruntime, pytest

        def infer():
            session = onnxruntime.InferenceSession(MODEL, providers=["CPUExecutionProvider"])
            session.run(None, {"image": numpy.zeros((1, 3, 224, 224), numpy.float32)})

        @pytest.mark.onnx_memory(limit="1GiB")
        def test_fits():
            infer()

        @pytest.mark.onnx_memory(limit="10MiB")
        def test_does_not():
            infer()
        """.replace("MODEL", repr(str(unet)))
    result = outcomes(pytester, code)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*and 10.0 MiB are allowed*", "*at its end * of it were still there: *"])


def test_the_fixture_checks_files_and_blocks(pytester: pytest.Pytester, matmul: Path) -> None:
    code = """
        def test_file(onnx_memory):
            checked = onnx_memory.check(MODEL, "1GiB", runs=1, mode="tuned")
            assert checked.fits and checked.key.mode == "tuned"

        def test_file_too_large(onnx_memory):
            onnx_memory.check(MODEL, "20MiB", runs=1, advice=False)

        def test_block(onnx_memory):
            with onnx_memory.limit("100MiB"):
                bytearray(20 * 2**20)
            with onnx_memory.limit("5MiB"):
                assert len(bytearray(20 * 2**20)) > 0
        """.replace("MODEL", repr(str(matmul)))
    result = outcomes(pytester, code)
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(["*Failed: matmul.onnx in mode stock takes * more than its budget*"])
    result.stdout.fnmatch_lines(['>*with onnx_memory.limit("5MiB"):', "*Failed: memory grew by *"])


def test_markers_that_cannot_be(pytester: pytest.Pytester) -> None:
    result = outcomes(
        pytester,
        """
        import pytest

        @pytest.mark.onnx_memory(limit="lots")
        def test_size(): pass

        @pytest.mark.onnx_memory
        def test_nothing(): pass

        @pytest.mark.onnx_memory(limit="1MiB", mode="planned")
        def test_more(): pass
        """,
    )
    result.assert_outcomes(failed=3)
    result.stdout.fnmatch_lines(["*'lots' is not a size*", "*takes a limit and nothing else*"])


def test_it_loads_nothing_until_a_test_asks(pytester: pytest.Pytester) -> None:
    result = outcomes(
        pytester,
        """
        import sys

        def test_light():
            assert "onnxmem.checking.pytest_plugin" in sys.modules
            heavy = {"numpy", "onnx", "onnxruntime", "rich", "typer", "onnxmem.measurement", "onnxmem.documents"}
            assert not heavy & sys.modules.keys()
        """,
    )
    result.assert_outcomes(passed=1)
    assert "onnx_memory(limit" in pytester.runpytest_subprocess(*NAMED, "--markers").stdout.str()
