"""TOML files may be a stranger's: they are read in no time, or refused with a sentence."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from onnxmem.errors import UsageError
from onnxmem.toml_tables import Key, read_table, read_toml


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a = " + "9" * 5_000, "an integer in it has more than 64 bits"),
        ("a = 0x" + "f" * 5_000, "an integer in it has more than 64 bits"),
        ("a = [{b = [9223372036854775808]}]", "an integer in it has more than 64 bits"),
        ("a = " + "[" * 60_000, "nested too deeply"),
        ("a" + ".a" * 32_000 + " = 1", "a line with more than 1,000 dots"),
        ("#" * 65_537, "more than 64.0 KiB"),
    ],
)
def test_what_is_no_settings_is_refused_at_once(tmp_path: Path, text: str, said: str) -> None:
    (file := tmp_path / "a.toml").write_text(text)
    began = time.process_time()
    with pytest.raises(UsageError, match=said):
        read_toml(file)
    assert time.process_time() - began < 2


def test_the_largest_that_are_allowed(tmp_path: Path) -> None:
    (file := tmp_path / "a.toml").write_text("a = 9223372036854775807\r\nb = [-9223372036854775808, true]\n")
    assert read_toml(file) == {"a": 2**63 - 1, "b": [-(2**63), True]}


@pytest.mark.parametrize("error", [OverflowError, RecursionError])
def test_what_no_reader_can_take_is_named_by_its_key(error: type[Exception]) -> None:
    def read(_: object) -> None:
        raise error

    with pytest.raises(UsageError, match=r"'t\.a' cannot be '…'") as raised:
        read_table(Path("f"), {"a": 1 << 20_000}, {"a": Key(read, "a number")}, "t")
    assert raised.value.hint == "it must be a number"
