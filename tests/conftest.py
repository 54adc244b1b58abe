"""What many tests need."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from benchmarks import real_models
from onnxmem import zoo

# Started in the background of a shell, tests inherit that Ctrl-C is ignored; so would the processes they press it in.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Neither what earlier processes left, nor what tests leave: those that are about it say so.
os.environ["ONNXMEM_KEEP_PLANS"] = "0"
# Nor what other processes do at the same time, other runs of the tests among them: some tests look whether anything is
# left behind. Not where pytest keeps the folders of tests, which are there to be looked at.
if "PYTEST_XDIST_WORKER" not in os.environ:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp(prefix="onnxmem-tests-")


def pytest_unconfigure() -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["TMPDIR"], ignore_errors=True)


@pytest.fixture(scope="session")
def real_model() -> Callable[[str], Path]:
    """The path of a real model by its key. Where it cannot be fetched the test is skipped, and says why."""

    def fetch(key: str) -> Path:
        try:
            return real_models.fetch(key)
        except real_models.FetchError as error:
            pytest.skip(str(error))

    return fetch


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four MatMuls: 4 MiB of weights, all of which kernels pack."""
    path = tmp_path_factory.mktemp("models") / "chain.onnx"
    onnx.save(zoo.build("matmul", layers=4, width=512), path)
    return path


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """x (batch × 64) → y (batch × 64)."""
    path = tmp_path_factory.mktemp("models") / "small.onnx"
    onnx.save(zoo.build("matmul", layers=2, width=64), path)
    return path


@pytest.fixture(scope="session")
def strings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """text → the same text, a sequence of twice a tensor, and the tensor in half precision."""
    path = tmp_path_factory.mktemp("models") / "strings.onnx"
    half = helper.make_tensor_value_info("half", TensorProto.FLOAT16, ["m"])
    graph = helper.make_graph(
        [
            helper.make_node("Identity", ["text"], ["same"]),
            helper.make_node("SequenceConstruct", ["number", "number"], ["pair"]),
            helper.make_node("Cast", ["number"], ["half"], to=TensorProto.FLOAT16),
        ],
        "strings",
        [
            helper.make_tensor_value_info("text", TensorProto.STRING, ["n", 2]),
            helper.make_tensor_value_info("number", TensorProto.FLOAT, ["m"]),
        ],
        [
            helper.make_tensor_value_info("same", TensorProto.STRING, ["n", 2]),
            helper.make_tensor_sequence_value_info("pair", TensorProto.FLOAT, ["m"]),
            half,
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture
def main_module() -> Iterator[None]:
    """The runner of pages puts the page in the place of the main module, which fresh processes would look for."""
    before = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = before
