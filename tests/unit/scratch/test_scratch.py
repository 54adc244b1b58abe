"""The formulas of kernels' scratch, by hand: one small case for each thing that decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from onnxmem.model.blocks import BLOCKED_DOMAIN
from onnxmem.model.graph import Node
from onnxmem.scratch import attention
from onnxmem.scratch.kernel import Scratch
from onnxmem.scratch.kernels import allocated_shape, scratch_of
from onnxmem.unknown import Unknown

CONTRIB = "com.microsoft"
_THREAD = 4 * 128 * 128


def asked(
    op: str,
    inputs: Sequence[Sequence[int] | None],
    *outputs: Sequence[int] | None,
    weights: Sequence[int] = (1,),
    dtypes: Sequence[str] = (),
    threads: int = 1,
    domain: str = "",
    opset: int = 17,
    block: int = 8,
    **attributes: Any,
) -> Scratch:
    """The scratch of a node with inputs and outputs of these shapes; None where there is none."""
    read = tuple(f"x{place}" if shape is not None else "" for place, shape in enumerate(inputs))
    made = tuple(f"y{place}" if shape is not None else "" for place, shape in enumerate(outputs))
    shapes = {
        name: tuple(shape) for name, shape in zip((*read, *made), (*inputs, *outputs), strict=True) if shape is not None
    }
    kinds = dict(zip(read, dtypes, strict=False))
    constant = {read[place] for place in weights if place < len(read)}
    node = Node(0, "", op, domain, read, made, attributes=attributes)
    found = scratch_of(node, shapes.get, kinds.get, constant.__contains__, threads, block, opset)
    assert isinstance(found, Scratch), found
    return found


def test_peak_counts_what_is_given_back() -> None:
    scratch = Scratch((10, 20, -2, 5, -1, 30))
    assert scratch.buffers == (10, 20, 5, 30)
    assert scratch.peak == 35


@pytest.mark.parametrize(
    ("data", "weights", "output", "attributes", "threads", "taken"),
    [
        ((1, 3, 32, 32), (16, 3, 3, 3), (1, 16, 30, 30), {}, 1, [_THREAD]),
        ((1, 3, 32, 32), (16, 3, 3, 3), (1, 16, 30, 30), {}, 2, [2 * _THREAD]),
        # Too little work for a second thread.
        ((1, 4, 6, 6), (2, 4, 3, 3), (1, 2, 4, 4), {}, 2, [_THREAD]),
        # Pieces of 16 pixels: three threads are enough for 40 pixels, though four are there.
        ((1, 512, 42), (32, 512, 3), (1, 32, 40), {}, 4, [3 * _THREAD]),
        # With several images or groups each has a thread, however small it is.
        ((3, 4, 6, 6), (2, 4, 3, 3), (3, 2, 4, 4), {}, 4, [3 * _THREAD]),
        ((1, 16, 9, 9), (16, 1, 3, 3), (1, 16, 7, 7), {"group": 16}, 4, [4 * _THREAD]),
        # More filters than pixels: all columns at once.
        ((1, 256, 8, 8), (64, 256, 3, 3), (1, 64, 6, 6), {}, 2, [4 * 36 * 256 * 9]),
        # As it lies: one pixel, or the whole width of one channel.
        ((1, 16, 32, 32), (16, 16, 1, 1), (1, 16, 32, 32), {}, 1, []),
        ((1, 16, 32, 32), (16, 16, 1, 1), (1, 16, 32, 32), {"auto_pad": "SAME_UPPER"}, 1, []),
        ((1, 16, 32, 32), (16, 16, 1, 1), (1, 16, 16, 16), {"strides": [2, 2]}, 1, [_THREAD]),
        ((1, 1, 64, 64), (16, 1, 3, 64), (1, 16, 62, 1), {}, 1, []),
        ((1, 1, 8, 64), (4, 1, 8, 1), (1, 4, 1, 64), {}, 1, []),
        ((1, 1, 8, 64), (4, 1, 8, 3), (1, 4, 1, 62), {}, 1, [_THREAD]),
        # No images at all.
        ((0, 3, 32, 32), (16, 3, 3, 3), (0, 16, 30, 30), {}, 1, []),
        # More dimensions than the fast routine knows.
        ((1, 2, 3, 3, 3, 3), (4, 2, 2, 2, 2, 2), (1, 4, 2, 2, 2, 2), {}, 1, [4 * 2 * 16 * 16]),
    ],
)
def test_convolution(
    data: Sequence[int],
    weights: Sequence[int],
    output: Sequence[int],
    attributes: dict[str, Any],
    threads: int,
    taken: list[int],
) -> None:
    scratch = asked("Conv", [data, weights], output, threads=threads, **attributes)
    assert scratch == Scratch(tuple(taken))
    assert asked("FusedConv", [data, weights], output, threads=threads, domain=CONTRIB, **attributes) == scratch
    assert asked("Conv", [data, weights], output, threads=threads, domain=BLOCKED_DOMAIN, **attributes) == Scratch()


def test_transposed_convolution_takes_the_columns_of_one_image_and_group() -> None:
    scratch = asked("ConvTranspose", [(2, 16, 8, 8), (16, 2, 4, 4)], (2, 8, 18, 18), group=4)
    assert scratch.buffers == (4 * 2 * 16 * 64,)


def test_lstm_takes_all_gates_and_states_that_nobody_asked_for() -> None:
    inputs = [(7, 3, 24), (1, 128, 24), (1, 128, 32), (1, 256)]
    row, state, gates = 128, 384, 4 * 7 * 3 * 4 * 32
    alone = asked("LSTM", inputs, (7, 1, 3, 32))
    assert alone.buffers == (state, state, row, row, state, state, state, gates, row, row, row, row, 12)
    known = [*inputs, (3,)]
    without_bias = [*inputs[:3], None, (3,)]
    states = [(1, 3, 32)] * 2
    assert asked("LSTM", known, (7, 1, 3, 32), *states).buffers == alone.buffers[2:-1]
    assert asked("LSTM", without_bias, (7, 1, 3, 32), *states).buffers == alone.buffers[2:8]


def test_recurrent_networks_turn_their_input_round_to_read_it_backwards() -> None:
    inputs = [(7, 3, 24), (1, 96, 24), (1, 96, 32)]
    forward = asked("GRU", inputs, (7, 1, 3, 32), (1, 3, 32))
    backward = asked("GRU", inputs, (7, 1, 3, 32), (1, 3, 32), direction="reverse")
    assert sum(backward.buffers) - sum(forward.buffers) == 4 * 7 * 3 * (24 + 32)
    both = asked("GRU", inputs, (7, 2, 3, 32), (2, 3, 32), direction="bidirectional")
    assert both.buffers == forward.buffers + backward.buffers


def test_a_quantized_convolution_needs_no_wide_sums_where_weights_are_symmetric() -> None:
    inputs = [(1, 16, 32, 32), (), (), (24, 16, 3, 3), (), (), (), ()]
    signed = ["uint8", "float32", "uint8", "int8", "float32", "int8"]
    unsigned = [*signed[:3], "uint8", "float32", "uint8"]
    output = (1, 24, 30, 30)
    turned = (16 * 1024, 24 * 900)
    fixed = range(1, 8)
    wide = asked("QLinearConv", inputs, output, weights=fixed, dtypes=unsigned)
    assert wide.buffers == (4 * 24 * 900, *turned, 144 * 900)
    narrow = asked("QLinearConv", inputs, output, weights=fixed, dtypes=signed)
    assert narrow.buffers == (*turned, 8 * 9 * 900)
    computed = asked("QLinearConv", inputs, output, weights=[2, 5], dtypes=signed)
    assert computed.buffers == (24 * 16 * 9, *wide.buffers)


def test_a_symmetric_convolution_of_images_with_channels_last_does_all_at_once() -> None:
    kinds = ["uint8", "float32", "uint8", "int8", "float32", "int8"]
    for images in (1, 3):
        inputs = [(images, 16, 16, 16), (), (), (32, 16, 3, 3), (), (), (), ()]
        output = (images, 14, 14, 32)
        scratch = asked("QLinearConv", inputs, output, weights=range(1, 8), dtypes=kinds, channels_last=1)
        assert scratch.buffers == (images * 8 * 9 * 196,)


def test_a_pool_of_bytes_does_512_pixels_at_once() -> None:
    how: dict[str, Any] = {"domain": CONTRIB, "kernel_shape": [2, 2]}
    assert asked("NhwcMaxPool", [(2, 16, 16, 8)], (2, 15, 15, 8), **how).buffers == (8 * 4 * 225,)
    assert asked("NhwcMaxPool", [(2, 64, 64, 8)], (2, 63, 63, 8), **how).buffers == (8 * 4 * 512,)


def test_a_convolution_of_integers_in_place_takes_nothing() -> None:
    assert asked("ConvInteger", [(1, 16, 8, 8), (8, 16, 1, 1)], (1, 8, 8, 8)) == Scratch()
    assert asked("ConvInteger", [(1, 16, 8, 8), (8, 8, 3, 3)], (1, 8, 6, 6), group=2).buffers == (8 * 9 * 36,)


def test_fourier_transforms_of_other_lengths_go_through_the_next_power_of_two() -> None:
    assert asked("DFT", [(1, 256, 1)], (1, 256, 2), axis=1) == Scratch()
    size = 8 * 512
    assert asked("DFT", [(1, 250, 1)], (1, 250, 2), axis=1) == Scratch((size, size, size, -3, size, size))
    assert asked("DFT", [(1, 250, 1), ()], (1, 151, 2), axis=1, onesided=1).buffers[0] == 8 * 1024
    assert asked("DFT", [(1, 126, 2)], (1, 250, 1), axis=1, onesided=1, inverse=1).buffers[0] == size
    assert asked("STFT", [(1, 4000, 1), (), None, ()], (1, 23, 201, 2)).buffers[0] == 8 * 1024


def test_softmax_turns_an_inner_axis_outside_since_opset_13() -> None:
    assert asked("Softmax", [(2, 30, 40)], (2, 30, 40), axis=1).buffers == (9600, 9600)
    assert asked("Softmax", [(2, 30, 40)], (2, 30, 40), axis=2) == Scratch()
    assert asked("Softmax", [(2, 30, 40)], (2, 30, 40), axis=1, opset=12) == Scratch()


def test_where_chooses_from_each_side_before_it_has_an_output() -> None:
    scratch = asked("Where", [(3, 1), (1,), (3, 10)], (3, 10), dtypes=["bool", "int64", "int64"])
    assert scratch == Scratch((8 * 3, 8 * 30), before=2)


def test_of_many_holds_two_sums_at_most() -> None:
    assert asked("Sum", [(8, 64)] * 2, (8, 64)) == Scratch()
    scratch = asked("Sum", [(8, 64)] * 5, (8, 64))
    assert scratch == Scratch((2048, 2048, -1, 2048, -2), before=5)
    assert scratch.peak == 4096


def test_attention_in_blocks_that_fit_the_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "second_level_cache", lambda: 512 << 10)
    inputs = [(1, 512, 512)] * 3
    scratch = asked("MultiHeadAttention", inputs, (1, 512, 512), threads=2, domain=CONTRIB, num_heads=8)
    assert scratch.buffers == (1 << 20, 1 << 20, 1 << 20, 2 * 4 * 128 * (2 + 256 + 64))
    monkeypatch.setattr(attention, "second_level_cache", lambda: 0)
    whole = asked("MultiHeadAttention", inputs, (1, 512, 512), threads=2, domain=CONTRIB, num_heads=8)
    assert whole.buffers[3:] == (4 * 8 * 512 * 512, 64 * 8, 1 << 20)


def test_a_bias_is_added_to_each_of_query_key_and_value_in_turn() -> None:
    scratch = asked(
        "MultiHeadAttention",
        [*[(1, 16, 32)] * 3, (96,), (1, 16)],
        (1, 16, 32),
        domain=CONTRIB,
        num_heads=4,
    )
    one = (2048, 2048, 128)
    assert scratch.steps[:15] == (*one, -3, -2, *one, -6, -5, *one, -9, -8)


def test_resizing_remembers_where_each_pixel_comes_from() -> None:
    data, output = (2, 3, 16, 20), (2, 3, 24, 50)
    assert asked("Resize", [data], output) == Scratch()
    assert asked("Resize", [data], data, mode="linear") == Scratch()
    assert asked("Resize", [data], output, mode="linear").buffers == (16 * 74,)
    assert asked("Resize", [data], output, mode="linear", antialias=1).buffers == (600, 288, 4 * 3 * 16 * 50)


def test_einsum_turns_what_is_out_of_order() -> None:
    product = asked("Einsum", [(2, 3, 7, 8), (2, 3, 9, 8)], (2, 3, 7, 9), equation="bhid,bhjd->bhij")
    assert product == Scratch((1728, 1728, 1512), before=3)
    turned = asked("Einsum", [(4, 5)], (5, 4), equation="ij->ji")
    assert turned == Scratch((80,), before=0)


def test_weights_of_few_bits_become_floats_where_nothing_multiplies_them_as_they_are() -> None:
    def reserved(weights: Sequence[int], **attributes: Any) -> int:
        inputs = [(8, 128), (64, 4, 16), (256,)]
        how = {"K": 128, "N": 64, "block_size": 32, **attributes}
        return asked("MatMulNBits", inputs, (8, 64), weights=weights, domain=CONTRIB, **how).reserved

    assert reserved([1, 2], bits=4) == 0
    assert reserved([1, 2], bits=8) == reserved([], bits=4) == 4 * 128 * 64
    assert reserved([1, 2], bits=8, accuracy_level=4) == 8 * 4 * 40


def test_scan_turns_sequences_and_keeps_two_states() -> None:
    inputs = [(3, 100), (3, 5, 50)]
    scratch = asked("Scan", inputs, (3, 100), (5, 3, 150), num_scan_inputs=1, scan_input_axes=[1])
    assert scratch == Scratch((3000, 1200, 1200), before=1)
    assert asked("Scan", [(3, 100), (1, 3, 50)], (3, 100), (1, 3, 150), num_scan_inputs=1) == Scratch()


def test_a_loop_keeps_its_pieces_until_they_are_put_together() -> None:
    scratch = asked("Loop", [(), (), (1, 10)], (1, 10), (5, 1000))
    assert scratch == Scratch((8, 1, 5 * 4096), before=3)


def test_operators_without_a_formula_take_nothing() -> None:
    assert asked("MatMul", [(8, 64), (64, 32)], (8, 32)) == Scratch()


def test_a_shape_that_nobody_knows_is_said() -> None:
    node = Node(0, "", "LRN", "", ("x",), ("y",), attributes={"size": 5})
    found = scratch_of(node, lambda _: None, lambda _: None, lambda _: False, 1, 8)
    assert found == Unknown("the shape of x is not known")


@pytest.mark.parametrize(
    ("domain", "op", "block", "allocated"),
    [
        (BLOCKED_DOMAIN, "ReorderInput", 8, (1, 16, 7, 7)),
        (BLOCKED_DOMAIN, "Conv", 16, (1, 16, 7, 7)),
        (BLOCKED_DOMAIN, "ReorderOutput", 16, (1, 12, 7, 7)),
        ("", "Conv", 16, (1, 12, 7, 7)),
    ],
)
def test_channels_in_blocks_come_in_whole_blocks(domain: str, op: str, block: int, allocated: Sequence[int]) -> None:
    assert allocated_shape(Node(0, "", op, domain, ("x",), ("y",)), (1, 12, 7, 7), block) == allocated
