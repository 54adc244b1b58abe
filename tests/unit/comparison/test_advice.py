"""What follows from the numbers, each with what it saves."""

import numpy as np

from onnxmem.comparison.advice import ESTIMATED, MEASURED, WhatIf, advise
from onnxmem.comparison.figure import Figure
from onnxmem.comparison.parity import Parity
from onnxmem.comparison.result import AtSize, Result
from onnxmem.comparison.sizes import Size

MIB = 2**20


def result(name: str, peak: int, *, batch: int = 4, load_peak: int = 0) -> Result:
    size = Size("x", {"x": np.zeros((batch, 3), np.float32)}, {})
    known = Figure((peak,))
    at = AtSize(size, known, known, Figure((peak // 2,)), Figure((0.1,)), Figure((0.1,)), None)
    some = Figure((10 * MIB,))
    load = Figure((load_peak or 10 * MIB,))
    return Result(name, "onnx", "stock", "", MIB, some, some, some, some, some, load, some, (at,), (), None)


def test_what_to_provide_comes_first_then_changes_by_what_they_save() -> None:
    what_ifs = [WhatIf("mode", "Load it tuned", 50 * MIB, MEASURED), WhatIf("order", "Reorder", 90 * MIB, ESTIMATED)]
    found = advise([result("a", 200 * MIB), result("b", 300 * MIB)], Parity("a", 1e-4, ()), (), what_ifs)
    assert [each.topic for each in found] == ["container", "workers", "candidate", "order", "batch", "mode", "little"]
    container, workers = found[0].document(), found[1].document()
    assert container["container_bytes"] == 384 * MIB and container["headroom"] == 0.5
    assert workers["workers_per_gib"] == 1024 / 200
    for each in found[2:-1]:
        assert each.saving and each.basis in (MEASURED, ESTIMATED)
    assert "measured once" in found[5].text and "(estimated)" in found[4].text
    # Loading does not set the peak here, so that external data would save nothing: it is said, not left open.
    assert found[-1].document()["savings_bytes"] == {"external data": 0}


def test_external_data_where_loading_sets_the_peak() -> None:
    found = advise([result("a", 200 * MIB, batch=1, load_peak=200 * MIB)], Parity("a", 1e-4, ()), (), [])
    assert [each.topic for each in found] == ["container", "workers", "external data"]
    assert found[-1].saving == 90 * MIB and found[-1].basis == ESTIMATED


def test_nobody_to_advise_on() -> None:
    assert advise([], Parity(None, 1e-4, ()), (), []) == ()
