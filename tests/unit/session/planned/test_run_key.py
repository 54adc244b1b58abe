"""What decides what a run asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from onnxmem import InferenceSession
from onnxmem.session.planned.run_key import Binding, key_of_binding, key_of_run, shrinks, synchronizes


class Elsewhere:
    """As a tensor on a device, for which there need be none."""

    def __init__(self, device: str) -> None:
        self.device_name = lambda: device

    def shape(self) -> list[int]:
        return [2, 3]

    def is_tensor(self) -> bool:
        return True


def test_feeds_on_a_device_are_other_runs_than_feeds_on_the_host() -> None:
    array, there = np.empty((2, 3)), Elsewhere("cuda")
    keys = [
        key_of_run(None, {"x": value, "y": array}, None, frozenset(), on_device=True)
        for value in (array, there, Elsewhere("cpu"))
    ]
    assert keys[0] == keys[2] != keys[1]
    assert key_of_run(None, {"x": there}, None, frozenset()) == key_of_run(None, {"x": array}, None, frozenset())


def test_bound_values_are_known_by_where_they_are(chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = InferenceSession(chain)
    name, out = session.get_inputs()[0].name, session.get_outputs()[0].name
    binding = session.io_binding()
    assert isinstance(binding, Binding)
    binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(np.ones((2, 512), "f4")))
    binding.bind_output(out)
    on_host = key_of_binding(binding)
    assert on_host.inputs == ((name, (2, 512)),)
    # This ONNX Runtime has no other device; what it would be told is all that counts.
    nothing: Any = lambda *_, **__: None  # noqa: E731
    monkeypatch.setattr(onnxruntime.IOBinding, "bind_output", nothing)
    monkeypatch.setattr(onnxruntime.IOBinding, "bind_input", nothing)
    binding.bind_output(out, "cuda", 0)
    output_elsewhere = key_of_binding(binding)
    binding.bind_input(name, "cuda", 0, np.float32, [2, 512], 0)
    both_elsewhere = key_of_binding(binding)
    assert len({on_host, output_elsewhere, both_elsewhere}) == 3
    binding.bind_output(out, device_type="cpu")
    binding.bind_input(name, "cpu", 0, np.float32, [2, 512], 0)
    assert key_of_binding(binding) == on_host
    binding.bind_output(out, "cuda", 0)
    binding.clear_binding_outputs()
    binding.clear_binding_inputs()
    assert (binding.shapes, binding.devices, binding.outputs) == ({}, {}, {})


def test_what_a_run_is_told() -> None:
    options = onnxruntime.RunOptions()
    assert (shrinks(options), synchronizes(options), synchronizes(None)) == (False, True, True)
    options.add_run_config_entry("disable_synchronize_execution_providers", "0")
    assert synchronizes(options)
    options.add_run_config_entry("disable_synchronize_execution_providers", "1")
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "gpu:0")
    assert (shrinks(options), synchronizes(options)) == (True, False)
