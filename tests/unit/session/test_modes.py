"""The table of modes: complete, and free of combinations that crash."""

from pathlib import Path

import pytest

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.session import modes
from onnxmem.session.modes import MODES, check_mode, check_version, find_mode, refuse_unsafe

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_mode_says_what_it_costs_needs_and_is_not_for(mode: modes.Mode) -> None:
    assert mode.about and mode.costs and mode.needs and mode.avoid
    assert mode.form in modes.FORMS
    refuse_unsafe(mode.config, from_bytes=False)


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
def test_every_mode_is_in_the_documentation(mode: modes.Mode) -> None:
    row = f"| `{mode.name}` | {mode.about} | {mode.costs} | {mode.needs} | {mode.avoid} |"
    assert row in (ROOT / "docs" / "serving.md").read_text()


def test_a_mode_that_does_not_pack_switches_the_memory_pattern_off_too() -> None:
    # The pattern would reserve one block for all weights, which nobody uses.
    for mode in MODES:
        if mode.config.get(modes.DISABLE_PREPACKING) == "1":
            assert mode.options["enable_mem_pattern"] is False
            assert not mode.exact


def test_bytes_that_are_freed_under_the_session_are_refused() -> None:
    both = {modes.ORT_BYTES: "1", modes.ORT_INITIALIZERS: "1"}
    with pytest.raises(UsageError, match="wrong outputs in silence"):
        refuse_unsafe(both, from_bytes=True)
    refuse_unsafe({**both, modes.ORT_INITIALIZERS: "0"}, from_bytes=True)
    refuse_unsafe(both, from_bytes=False)


def test_mapping_needs_a_file() -> None:
    with pytest.raises(UsageError, match="no file to map"):
        refuse_unsafe({modes.MAP_ORT: "1"}, from_bytes=True)


def test_a_runtime_that_is_too_old_is_named() -> None:
    with pytest.raises(RuntimeUnsupported, match=r"'ort-mapped' needs ONNX Runtime 1\.26, and this is 1\.25\.1"):
        check_version(find_mode("ort-mapped"), "1.25.1")
    check_version(find_mode("ort-mapped"), "1.26.0")


def test_a_mode_that_reads_other_files_says_how_to_make_one() -> None:
    with pytest.raises(UsageError, match=r"needs an \.ort file") as caught:
        check_mode("ort-mapped", Path("model.onnx"))
    assert "onnxmem pack model.onnx --mode ort-mapped" in caught.value.hint
    with pytest.raises(UsageError, match="there is no mode 'fast'"):
        check_mode("fast", Path("model.onnx"))
