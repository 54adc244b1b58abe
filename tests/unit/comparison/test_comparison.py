"""A comparison is a record: it comes back from JSON, and what follows from it is the same again."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.comparison.compare import Comparison, compare
from onnxmem.comparison.parity import Difference, Parity
from onnxmem.comparison.result import Figure, figure
from onnxmem.errors import ModelError, UsageError
from onnxmem.progress import Progress
from onnxmem.unknown import Unknown
from onnxmem.zoo import build
from tests.unit.comparison.samples import candidate, comparison


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=4), st.floats(0, 1), st.booleans())
def test_what_is_saved_comes_back_equal(peaks: list[int], ratio: float, same: bool) -> None:
    difference = Difference(candidate="b", size="x", output="y", same=same, max_abs=ratio, cosine=1.0)
    failed = candidate("b", *peaks, file_bytes=Unknown("it has no file"), failure="killed", mode=None)
    result = comparison(candidate("a", *peaks), failed, parity=Parity("a", 1e-4, (difference,)), exported={"b": "a"})
    document = json.loads(json.dumps(result.document(), allow_nan=False))
    back = Comparison.from_document(document)
    assert back == result and back.rows == result.rows
    assert json.loads(json.dumps(back.document())) == document


def test_documents_keep_the_keys_that_others_rely_on() -> None:
    document = comparison(candidate("a", 200, 210), candidate("b", 300, 310)).document()
    first = document["candidates"][0]
    assert first["total_rss_bytes"] == 10 * 2**20 and first["spread"]["load_seconds"] == [0.5, 1]
    assert first["inputs"][0]["shape"] == [4, 3] and first["inputs"][0]["elements"] == 12
    assert first["inputs"][0]["peak_rss_bytes"] == 200 * 2**20
    assert first["cold_start_seconds"] is None and first["unknown"]["cold_start_seconds"] == "it did not run"
    assert document["parity"]["same"] and document["sizes"][0]["size"] == "x"
    row = next(row for row in document["rows"] if row["metric"] == "peak memory")
    assert row["values"] == {"a": 200 * 2**20, "b": 300 * 2**20} and row["spread"]["b"][1] == 310 * 2**20


def test_a_median_is_one_of_the_samples() -> None:
    assert Figure((4, 1, 3, 2)).median == 2 and figure([None, Unknown("gone")], "?") == Unknown("gone")
    assert figure([None], "it did not run") == Unknown("it did not run")


def test_fits_predict_beyond_what_was_measured() -> None:
    assert comparison(candidate("a", 200)).fits == ()


def test_a_twin_does_not_overwrite_a_candidate_of_its_name(tmp_path: Path) -> None:
    onnx.save(build("unet", channels=2), tmp_path / "net_make.onnx")
    (tmp_path / "net.py").write_text("def make(): ...")
    before = (tmp_path / "net_make.onnx").read_bytes()
    candidates = [f"{tmp_path}/net_make.onnx", f"{tmp_path}/net.py:make"]
    with pytest.raises(UsageError, match=r"twin of 'net.py:make' would overwrite '.*net_make.onnx'") as refused:
        compare(candidates, shapes={"image": (1, 3, 64, 64)}, export=tmp_path)
    assert refused.value.exit_code == 2 and refused.value.hint == "export to another folder"
    assert (tmp_path / "net_make.onnx").read_bytes() == before


def test_what_can_be_known_before_measuring_is_an_error_at_once(tmp_path: Path) -> None:
    good, empty, other = (tmp_path / name for name in ("good.onnx", "empty.onnx", "other.onnx"))
    onnx.save(build("unet", channels=2), good)
    empty.write_bytes(b"")
    proto = build("unet", channels=2)
    proto.graph.input.append(onnx.helper.make_tensor_value_info("more", onnx.TensorProto.FLOAT, [1]))
    onnx.save(proto, other)
    seen: list[Progress] = []
    with pytest.raises(ModelError) as unreadable:
        compare([empty, good], on_progress=seen.append)
    assert str(unreadable.value).count("empty.onnx") == 1 and "is not an ONNX model" in str(unreadable.value)
    with pytest.raises(
        UsageError, match=r"^'other.onnx' cannot be compared .*: it has 2 inputs .*, and 1 is fed"
    ) as two:
        compare([good, other], shapes={"image": (1, 3, 64, 64)}, on_progress=seen.append)
    assert two.value.hint == "all candidates have to take the same inputs" and not seen
