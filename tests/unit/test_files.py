import os
import stat
from pathlib import Path

import pytest

from onnxmem.errors import UsageError
from onnxmem.files import replacing, write_text


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    write_text(target, "old")
    write_text(target, "new")
    assert target.read_text() == "new"
    assert os.listdir(tmp_path) == ["plan.csv"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    target = tmp_path / "plan.csv"
    write_text(target, "old")

    def fail_half_way() -> None:
        with replacing(target) as temporary:
            temporary.write_text("half")
            raise ValueError

    with pytest.raises(ValueError):
        fail_half_way()
    assert target.read_text() == "old"
    assert os.listdir(tmp_path) == ["plan.csv"]


def test_a_new_file_has_ordinary_permissions(tmp_path: Path) -> None:
    write_text(tmp_path / "new.csv", "x")
    (tmp_path / "plain").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("new.csv", "plain")}
    assert len(modes) == 1


def test_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot write"):
        write_text(tmp_path / "nowhere" / "plan.csv", "x")
