"""What decides what a run asks for, and so which plan is its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

import onnxruntime

from onnxmem.session.options import run_entry, without_run_entry

_SHRINK = "memory.enable_memory_arena_shrinkage"
_UNSYNCHRONIZED = "disable_synchronize_execution_providers"
_HOST = "cpu"


_OVER = "over"
_LARGEST_ITEM = 16


class RunKey(NamedTuple):
    """What decides what a run asks for: the shapes that go in, and the outputs that are wanted or already there."""

    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[str, ...]
    bound: tuple[str, ...] = ()

    @property
    def kind(self) -> tuple[Any, ...]:
        """All of it but the numbers."""
        return tuple((name, len(dims)) for name, dims in self.inputs), self.outputs, self.bound

    @property
    def overwrites(self) -> bool:
        """Whether an output is written into memory that is read as an input: such a run cannot be done again."""
        return _OVER in self.bound

    @property
    def dims(self) -> tuple[int, ...]:
        """The numbers."""
        return tuple(dim for _, dims in self.inputs for dim in dims)


class Binding(onnxruntime.IOBinding):  # type: ignore[misc]
    """Remembers the shapes of what is bound, and on which device; onnxruntime's own does not list them."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.devices: dict[str, str] = {}
        """Of inputs that are not on the host."""
        self.outputs: dict[str, str] = {}
        """The same of outputs."""
        self.read: dict[str, tuple[int, int]] = {}
        """Where the memory of inputs begins and ends."""

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        super().bind_cpu_input(name, arr_on_cpu)
        self._bound(name, _HOST, _shape_of(arr_on_cpu), _place_of_array(arr_on_cpu))

    def bind_input(
        self, name: str, device_type: Any, device_id: Any, element_type: Any, shape: Any, buffer_ptr: Any
    ) -> None:
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        self._bound(name, device_type, tuple(shape), (buffer_ptr, buffer_ptr + prod(shape) * _LARGEST_ITEM))

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_input(name, ortvalue)
        self._bound(name, _device_of(ortvalue), _shape_of(ortvalue), _place_of(ortvalue))

    def bind_output(self, name: str, device_type: Any = _HOST, *arguments: Any, **more: Any) -> None:
        super().bind_output(name, device_type, *arguments, **more)
        _note(self.outputs, name, device_type)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_output(name, ortvalue)
        _note(self.outputs, name, _device_of(ortvalue))

    def clear_binding_inputs(self) -> None:
        super().clear_binding_inputs()
        self.shapes.clear()
        self.devices.clear()
        self.read.clear()

    def clear_binding_outputs(self) -> None:
        super().clear_binding_outputs()
        self.outputs.clear()

    def _bound(self, name: str, device: str, shape: tuple[int, ...], place: tuple[int, int]) -> None:
        self.shapes[name], self.read[name] = shape, place
        _note(self.devices, name, device)


def _note(devices: dict[str, str], name: str, device: str) -> None:
    devices.pop(name, None)
    if device != _HOST:
        devices[name] = device


def key_of_run(
    output_names: Any, feeds: Mapping[str, Any], run_options: Any, every: frozenset[str], *, on_device: bool = False
) -> RunKey:
    """The key of a run with feeds, which may be arrays or OrtValues, of a model with `every` of these outputs."""
    # Then nodes are left out, and others come in their place.
    partly = run_options is not None and run_options.only_execute_path_to_fetches
    bound: tuple[str, ...] = ("partly",) if partly else ()
    if on_device:
        # What lies there already is not copied.
        bound += tuple(sorted(name for name, value in feeds.items() if _device_of(value) != _HOST))
    wanted = tuple(output_names) if output_names and not every.issubset(output_names) else ()
    return RunKey(shapes_of(feeds), wanted, bound)


def shapes_of(feeds: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shapes of inputs, by name."""
    shapes = [(name, _shape_of(value)) for name, value in feeds.items()]
    if len(shapes) > 1:
        shapes.sort()
    return tuple(shapes)


def key_of_binding(binding: Any) -> RunKey:
    """The key of a run with what is bound."""
    shapes = tuple(sorted(getattr(binding, "shapes", {}).items()))
    # An output that is already there, bound by the caller or left from the last run, is written to and not allocated.
    read = [*getattr(binding, "read", {}).values()]
    there = tuple(_there(value, read) if value.has_value() else "" for value in binding.get_outputs_as_ortvaluevector())
    # What is not on the host is not copied.
    elsewhere = (*sorted(getattr(binding, "devices", {}).items()), *sorted(getattr(binding, "outputs", {}).items()))
    return RunKey(shapes, (), ("binding", *there, *(f"{name} on {device}" for name, device in elsewhere)))


def _there(output: Any, read: Sequence[tuple[int, int]]) -> str:
    first, last = _place_of(output)
    return _OVER if any(begin < last and first < end for begin, end in read) else "there"


def _place_of(value: Any) -> tuple[int, int]:
    """Where the memory of an OrtValue begins and ends; of what is no tensor, nobody knows."""
    value = getattr(value, "_ortvalue", value)
    if not value.is_tensor():
        return 0, 0
    first = value.data_ptr()
    return first, first + value.tensor_size_in_bytes()


def _place_of_array(array: Any) -> tuple[int, int]:
    first: int = array.__array_interface__["data"][0] if hasattr(array, "__array_interface__") else 0
    return first, first + getattr(array, "nbytes", 0)


def shrinks(run_options: Any) -> bool:
    """Whether the arena is to be given back after the run."""
    return run_entry(run_options, _SHRINK) != ""


def synchronizes(run_options: Any) -> bool:
    """Whether devices have done all of the run when it ends."""
    return run_options is None or run_entry(run_options, _UNSYNCHRONIZED, "0") == "0"


def without_shrinking(run_options: Any) -> AbstractContextManager[None]:
    """While a run with these options does not ask for an arena that is not there."""
    return without_run_entry(run_options, _SHRINK)


def _device_of(value: Any) -> str:
    """Where a feed lies; an array, and whatever is not a tensor, on the host."""
    return str(value.device_name()) if hasattr(value, "device_name") and value.is_tensor() else _HOST


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a feed. A wrong guess does no harm: runs are checked call by call."""
    shape = getattr(value, "shape", None)
    if type(shape) is tuple:
        return shape
    if callable(shape):  # an OrtValue, which may also be a sequence
        return tuple(shape()) if value.is_tensor() else (-1,)
    return (len(value),) if isinstance(value, list | tuple | dict) else ()
