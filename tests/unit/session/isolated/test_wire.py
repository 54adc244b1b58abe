from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from onnxmem.errors import UsageError
from onnxmem.session.isolated.wire import ALIGNMENT, Parcel, unpack


def journey(value: Any) -> Any:
    parcel = Parcel()
    description = parcel.add(value, "value")
    memory = np.empty(parcel.size, np.uint8)
    parcel.write(memory)
    return unpack(description, memory)


KINDS = st.sampled_from([np.float32, np.float64, np.float16, np.int8, np.int64, np.uint16, np.bool_, np.complex64])


@settings(max_examples=40)
@given(hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, min_side=0, max_side=5)))
def test_arrays_arrive_bit_for_bit(array: Any) -> None:
    arrived = journey(array)
    assert arrived.dtype == array.dtype and arrived.shape == array.shape
    assert arrived.tobytes() == array.tobytes()


@settings(max_examples=40)
@given(hnp.arrays(object, hnp.array_shapes(min_dims=0, min_side=0, max_side=4), elements=st.text(max_size=5)))
def test_strings_arrive_whatever_is_in_them(array: Any) -> None:
    arrived = journey(array)
    assert arrived.dtype == object and arrived.shape == array.shape
    assert arrived.tolist() == array.tolist()


def test_strided_arrays_need_no_copy_before_they_are_sent() -> None:
    array = np.arange(24, dtype=np.int32).reshape(4, 6)
    for view in (array.T, array[::2, ::-3], array[:, 2], np.broadcast_to(np.float32(3), (2, 3))):
        assert np.array_equal(journey(view), view)


def test_tensors_are_aligned_for_vector_instructions() -> None:
    parcel = Parcel()
    places = [parcel.add(np.zeros(n, np.uint8), "x")["at"] for n in (1, 63, 64, 65)]
    assert all(place % ALIGNMENT == 0 for place in places) and len(set(places)) == 4


def test_sequences_and_maps_keep_their_form() -> None:
    value = [{"cat": 0.5, "dog": float("inf")}, {3: "x", 4: "ü"}, None, [np.ones(2), True, 7]]
    arrived = journey(value)
    assert arrived[:3] == value[:3]
    assert np.array_equal(arrived[3][0], np.ones(2)) and arrived[3][1:] == [True, 7]


@pytest.mark.parametrize("value", [object(), np.array([object()]), np.array([1, "x"], object), {1, 2}])
def test_what_cannot_travel_is_refused_by_name(value: Any) -> None:
    with pytest.raises(UsageError, match="'image'"):
        Parcel().add(value, "image")


def test_types_that_numpy_does_not_know_are_refused() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    with pytest.raises(UsageError, match="bfloat16"):
        Parcel().add(np.zeros(2, ml_dtypes.bfloat16), "x")
