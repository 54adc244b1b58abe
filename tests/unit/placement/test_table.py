"""What is wrong with a table is one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmem.errors import PlanError
from onnxmem.placement.table import read_problem


@pytest.mark.parametrize("row", ["{long},0,1,8", 'b,0,1,8,"{long}"'])
def test_a_field_that_is_too_long(row: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.csv"
    header = "id,lower,upper,size" + (",shares" if row.startswith("b") else "")
    path.write_text(f"{header}\n{row.format(long='a' * 200_000)}\n")
    with pytest.raises(PlanError, match="line 2: field larger than field limit"):
        read_problem(path)
