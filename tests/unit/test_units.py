import pytest
from hypothesis import given
from hypothesis import strategies as st

from onnxmem.errors import UsageError
from onnxmem.units import (
    format_apart,
    format_bytes,
    format_count,
    format_percent,
    format_seconds,
    format_times,
    parse_bytes,
)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("1048576", 2**20),
        ("512MiB", 512 * 2**20),
        ("512 mib", 512 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("2GB", 2 * 10**9),
        ("4k", 4096),
        ("0.1B", 0),
    ],
)
def test_sizes_are_read_as_people_write_them(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize("text", ["", "MiB", "-1", "1e3", "12 parsecs", "1,5GiB", "0x10", "1 2"])
def test_what_is_not_a_size_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (2**20 - 1, "1.0 MiB"),
        (375_000_000, "357.6 MiB"),
        (-2048, "-2.0 KiB"),
        (3 * 2**40, "3.0 TiB"),
    ],
)
def test_sizes_are_written_with_their_unit(count: int, text: str) -> None:
    assert format_bytes(count) == text


@given(st.integers(0, 2**50))
def test_a_written_size_reads_back_within_its_rounding(count: int) -> None:
    assert abs(parse_bytes(format_bytes(count)) - count) <= max(count * 0.06, 0.06 * 1024)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (format_percent(0.123), "12.3%"),
        (format_percent(0.0001), "< 0.1%"),
        (format_percent(0.0), "0.0%"),
        (format_percent(0.99999), "> 99.9%"),
        (format_percent(1.0), "100.0%"),
        (format_times(2.5), "2.50×"),
        (format_times(1234.5), "1,234×"),
        (format_seconds(0.00004), "40 µs"),
        (format_seconds(0.0853), "85.3 ms"),
        (format_seconds(2.414), "2.41 s"),
        (format_count(1, "buffer"), "1 buffer"),
        (format_count(1200, "buffer"), "1,200 buffers"),
        (format_count(2, "process", "processes"), "2 processes"),
    ],
)
def test_figures_are_written_in_one_way(written: str, expected: str) -> None:
    assert written == expected


def test_two_sizes_never_read_the_same() -> None:
    assert format_apart(1_806_336, 1_807_360) == ("1,806,336 bytes", "1,807,360 bytes")
    assert format_apart(2**20, 2**21) == ("1.0 MiB", "2.0 MiB")
