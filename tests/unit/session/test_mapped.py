"""Which mappings of a package's weights are the session's own that has just been made?"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxmem
from onnxmem import zoo
from onnxmem.releasing.close import close
from onnxmem.session.mapped import Mapping, _added, making

PAGE = 4096


def mapping(address: int, offset: int, pages: int) -> Mapping:
    return Mapping(address * PAGE, (offset * PAGE, pages * PAGE))


@pytest.mark.parametrize(
    ("before", "now", "added"),
    [
        ([], [mapping(10, 0, 2)], [mapping(10, 0, 2)]),
        ([mapping(10, 0, 2)], [mapping(10, 0, 2), mapping(20, 0, 2)], [mapping(20, 0, 2)]),
        ([mapping(10, 0, 2)], [mapping(10, 0, 2)], []),
        # The system has joined an old one and its new neighbour behind or before it, or split an old one.
        ([mapping(10, 0, 2)], [mapping(10, 0, 5)], [mapping(12, 2, 3)]),
        ([mapping(10, 4, 2)], [mapping(7, 1, 5)], [mapping(7, 1, 3)]),
        ([mapping(10, 0, 4)], [mapping(10, 0, 1), mapping(11, 1, 3)], []),
    ],
)
def test_what_was_not_mapped_before(before: list[Mapping], now: list[Mapping], added: list[Mapping]) -> None:
    assert _added(before, now) == added


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mapped")
    onnx.save(zoo.build("matmul", layers=2, width=128), folder / "m.onnx")
    onnxmem.pack(folder / "m.onnx", folder / "m.pack", mode="prepacked")
    return folder / "m.pack"


def test_a_session_is_not_credited_with_what_another_has_mapped(package: Path) -> None:
    first, other = onnxmem.InferenceSession(package), onnxmem.InferenceSession(package)
    with making(other, package / "weights.bin") as own:
        assert own() == []
        second = onnxmem.InferenceSession(package)
        mapped = sum(length for _, (_, length) in own())
    assert mapped >= second.package.manifest.weights.packed  # type: ignore[union-attr]
    assert first


def test_sessions_come_and_go_in_threads(package: Path) -> None:
    options, feeds = onnxruntime.SessionOptions(), {"x": np.ones((3, 128), np.float32)}
    options.intra_op_num_threads = 1
    expected = onnxmem.InferenceSession(package, options).run(None, feeds)[0]
    failed: list[BaseException | str] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        kept = []
        for turn in range(20):
            try:
                session = onnxmem.InferenceSession(package, options)
                if not np.array_equal(session.run(None, feeds)[0], expected):
                    failed.append("wrong")
                kept.append(session)
                if turn == 10:
                    close(kept.pop())  # once: it looks at all objects of the process
                elif chance.random() < 0.5:
                    del kept[chance.randrange(len(kept)) :]
            except Exception as error:
                failed.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
