"""How many rows fit at once is known before anything runs, and a session does the same."""

from __future__ import annotations

import numpy as np
import pytest

from onnxmem import InferenceSession, UsageError, zoo
from onnxmem.model.model import Model
from onnxmem.prediction.chunks import Chunking, largest_chunk
from onnxmem.unknown import Unknown
from tests.unit.rewriting.texts import feeds, model
from tests.unit.session.planned.test_planned import one_thread

MIB = 2**20


@pytest.mark.parametrize(
    ("network", "sizes", "budget"),
    [("mobilenet", {"height": 64, "width": 64}, 2 * MIB), ("transformer", {"sequence": 32}, 3 * MIB)],
)
def test_a_session_does_what_was_predicted(network: str, sizes: dict[str, int], budget: int) -> None:
    proto = zoo.build(network, **({"layers": 1, "vocabulary": 50} if network == "transformer" else {}))
    fed = feeds(proto, batch=16, **sizes)
    found = largest_chunk(Model.of(proto), {name: array.shape for name, array in fed.items()}, budget, threads=1)
    assert isinstance(found, Chunking) and found.rows_at_once is not None
    assert found.least < found.needed <= budget < found.whole
    session = InferenceSession(proto.SerializeToString(), one_thread(), budget=budget)
    session.run(None, fed)
    session.run(None, fed)
    (batch,) = session.memory.batches
    assert abs(found.rows_at_once - batch.rows_at_once) <= 1  # parts are made equal
    assert found.needed == pytest.approx(batch.needed, rel=0.25)
    assert Chunking.from_document(found.document()) == found


def test_a_budget_for_which_not_even_one_row_is_small_enough() -> None:
    proto = model("a = MatMul(x, w) y = MatMul(a, v)", "float[n, 64, 32] x", w=(32, 1024), v=(1024, 16))
    found = largest_chunk(Model.of(proto), {"x": (8, 64, 32)}, 1000, threads=1)
    assert isinstance(found, Chunking)
    assert found.rows_at_once is None and found.needed == found.least > 64 * 1024 * 4


def test_what_cannot_be_split_says_why() -> None:
    mixed = Model.of(model("y = Softmax<axis = 0>(x)"))
    found = largest_chunk(mixed, {"x": (8, 8)}, 1000)
    assert isinstance(found, Unknown) and "Softmax" in found.reason
    two = Model.of(model("y = Add(x, z)", "float[n, 8] x, float[m, 8] z"))
    assert isinstance(largest_chunk(two, {"x": (8, 8), "z": (1, 8)}, 1000), Unknown)
    with pytest.raises(UsageError, match="'z'"):
        largest_chunk(two, {"x": np.zeros((8, 8)).shape}, 1000)
