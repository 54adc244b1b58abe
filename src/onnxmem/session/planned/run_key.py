"""What decides what a run asks for, and so which plan is its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import onnxruntime


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
    def dims(self) -> tuple[int, ...]:
        """The numbers."""
        return tuple(dim for _, dims in self.inputs for dim in dims)


class Binding(onnxruntime.IOBinding):  # type: ignore[misc]
    """Remembers the shapes of what is bound; onnxruntime's own does not list them."""

    def __init__(self, session: Any) -> None:
        super().__init__(session)
        self.shapes: dict[str, tuple[int, ...]] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        super().bind_cpu_input(name, arr_on_cpu)
        self.shapes[name] = _shape_of(arr_on_cpu)

    def bind_input(
        self, name: str, device_type: Any, device_id: Any, element_type: Any, shape: Any, buffer_ptr: Any
    ) -> None:
        super().bind_input(name, device_type, device_id, element_type, shape, buffer_ptr)
        self.shapes[name] = tuple(shape)

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        super().bind_ortvalue_input(name, ortvalue)
        self.shapes[name] = _shape_of(ortvalue)

    def clear_binding_inputs(self) -> None:
        super().clear_binding_inputs()
        self.shapes.clear()


def key_of_run(output_names: Any, feeds: Mapping[str, Any], run_options: Any, every: frozenset[str]) -> RunKey:
    """The key of a run with feeds, which may be arrays or OrtValues, of a model with `every` of these outputs."""
    # Then nodes are left out, and others come in their place.
    partly = run_options is not None and run_options.only_execute_path_to_fetches
    wanted = tuple(output_names) if output_names and not every.issubset(output_names) else ()
    return RunKey(shapes_of(feeds), wanted, ("partly",) if partly else ())


def shapes_of(feeds: Mapping[str, Any]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """The shapes of inputs, by name."""
    shapes = [(name, _shape_of(value)) for name, value in feeds.items()]
    if len(shapes) > 1:
        shapes.sort()
    return tuple(shapes)


def key_of_binding(binding: Any) -> RunKey:
    """The key of a run of what is bound."""
    shapes = tuple(sorted(getattr(binding, "shapes", {}).items()))
    # An output that is already there, bound by the caller or left from the last run, is written to and not allocated.
    there = tuple("there" if value.has_value() else "" for value in binding.get_outputs_as_ortvaluevector())
    return RunKey(shapes, (), ("binding", *there))


def _shape_of(value: Any) -> tuple[int, ...]:
    """The shape of a feed. A wrong guess does no harm: runs are checked call by call."""
    shape = getattr(value, "shape", None)
    if type(shape) is tuple:
        return shape
    if callable(shape):  # an OrtValue, which may also be a sequence
        return tuple(shape()) if value.is_tensor() else (-1,)
    return (len(value),) if isinstance(value, list | tuple | dict) else ()
