"""What a case is compared with is found before anything runs."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from onnxmem.checking.case import Prepared
from onnxmem.checking.check import Against
from onnxmem.errors import UsageError
from onnxmem.history.store import append
from tests.unit.checking.samples import MIB, case, checked, checking
from tests.unit.history.samples import entry, key

READY = Prepared(case(), key(), "ab" * 32)


def test_the_last_good_result_of_a_history(tmp_path: Path) -> None:
    file = tmp_path / "h.sqlite"
    against = Against(baseline="history", history=file)
    assert against.find([READY]) == [None]
    append(file, good := entry(), {})
    append(file, entry(200 * MIB, passed=False), {})
    assert against.find([READY]) == [good]
    assert against.find([replace(READY, case=case(figure="run"))]) == [None], "it does not have this figure"


def test_of_a_saved_result_what_is_about_the_same(tmp_path: Path) -> None:
    file = tmp_path / "old.json"
    file.write_text(json.dumps(checking(checked(), checked(key=key(mode="planned"))).document()))
    against = Against(baseline=file)
    other = replace(READY, key=key(mode="tuned"))
    found = against.find([READY, other])
    assert found[0] is not None and found[0].key == key() and found[1] is None
    with pytest.raises(UsageError, match=r"is no baseline for net.onnx, tuned, x 1×3×8×8: it is a result in mode"):
        against.find([other])
    with pytest.raises(UsageError, match="growth by running is not known: it died"):
        against.find([replace(READY, case=case(figure="run"))])
