"""Which graph of a package serves a run? The one that was made for its input shapes, or else the package's own.

Each graph is a session of its own over the same mapped weights, in one arena. A session begins with the first of the
graphs; the others are loaded when a run first needs them. If none has run before that, the first one makes room.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from onnxmem.session.forked import renew_in_children
from onnxmem.session.packed_graphs import TiledGraph
from onnxmem.session.planned.run_key import shapes_of

if TYPE_CHECKING:
    from onnxmem.session.session import InferenceSession

_Key = tuple[tuple[str, tuple[int, ...]], ...]


class Graphs:
    """The graphs of the package that `owner` was made from, as far as they are loaded; `owner` is one of them."""

    def __init__(self, owner: InferenceSession, tiled: Iterable[TiledGraph]) -> None:
        self._weak = weakref.ref(owner)  # which holds this: a cycle would keep its memory until it is found
        self._tiled = {_key(graph.inputs): graph for graph in tiled}
        self._others: dict[str | None, InferenceSession] = {}
        self._in_use = False
        self.begin_anew()
        renew_in_children(self)

    def begin_anew(self) -> None:
        """Another thread may have been loading a graph when this process was forked."""
        self._lock = threading.RLock()  # reentrant, as a handler of signals may come a second time
        self._loading = False
        """Whether the owner has half a graph: whoever comes a second time takes another session."""

    @property
    def _owner(self) -> InferenceSession:
        owner = self._weak()
        assert owner is not None, "the session is gone"
        return owner

    @property
    def loaded(self) -> list[InferenceSession]:
        """The sessions there are."""
        return [self._owner, *self._others.values()]

    def for_feeds(self, feeds: Mapping[str, Any]) -> InferenceSession:
        """The session that serves a run with these inputs."""
        return self.of(self._tiled.get(shapes_of(feeds)))

    def for_shapes(self, shapes: Mapping[str, tuple[int, ...]]) -> InferenceSession:
        """The session that serves a run with inputs of these shapes."""
        return self.of(self._tiled.get(_key(shapes)))

    def of(self, graph: TiledGraph | None) -> InferenceSession:
        """The session of a graph, which is loaded if it is not; None: the package's own."""
        owner = self._owner
        # Once it is in use, the owner keeps its graph.
        if self._in_use and graph is owner.graph:
            return owner
        with self._lock:
            if self._loading or (self._in_use and graph is not owner.graph):
                return self._other(owner, graph)
            # Without a session, an earlier try to load it failed.
            if graph is not owner.graph or owner._sess is None:
                self._load(owner, graph)
            self._in_use = True
            return owner

    def _load(self, owner: InferenceSession, graph: TiledGraph | None) -> None:
        self._loading = True
        try:
            owner._load_graph(graph)
        finally:
            self._loading = False

    def _other(self, owner: InferenceSession, graph: TiledGraph | None) -> InferenceSession:
        key = None if graph is None else graph.model
        if key not in self._others:
            self._others[key] = owner._beside(graph)
        return self._others[key]


class GraphBinding:
    """What is bound to a session of several graphs. Which of them runs is known only when it does."""

    def __init__(self, owner: InferenceSession, graphs: Graphs) -> None:
        self._owner, self._graphs = owner, graphs
        self._inputs: dict[str, Callable[[Any], None]] = {}
        self._outputs: dict[str, Callable[[Any], None]] = {}
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._bound: Any = None
        """The binding of the graph that ran last, or is asked for something else first."""
        self._session: InferenceSession | None = None

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        self._bind(self._inputs, "bind_cpu_input", name, arr_on_cpu)
        self._shapes |= shapes_of({name: arr_on_cpu})

    def bind_ortvalue_input(self, name: str, ortvalue: Any) -> None:
        self._bind(self._inputs, "bind_ortvalue_input", name, ortvalue)
        self._shapes |= shapes_of({name: ortvalue})

    def bind_input(
        self, name: str, device_type: Any, device_id: Any, element_type: Any, shape: Any, buffer_ptr: Any
    ) -> None:
        self._bind(self._inputs, "bind_input", name, device_type, device_id, element_type, shape, buffer_ptr)
        self._shapes[name] = tuple(shape)

    def bind_output(self, name: str, *arguments: Any, **keywords: Any) -> None:
        self._bind(self._outputs, "bind_output", name, *arguments, **keywords)

    def bind_ortvalue_output(self, name: str, ortvalue: Any) -> None:
        self._bind(self._outputs, "bind_ortvalue_output", name, ortvalue)

    def clear_binding_inputs(self) -> None:
        self._inputs.clear()
        self._shapes.clear()
        if self._bound is not None:
            self._bound.clear_binding_inputs()

    def clear_binding_outputs(self) -> None:
        self._outputs.clear()
        if self._bound is not None:
            self._bound.clear_binding_outputs()

    def __getattr__(self, name: str) -> Any:
        """The rest is about the outputs of the last run: it is the binding of the graph that ran, whatever has been
        bound since; another graph's has none, and ONNX Runtime would read them all the same."""
        return getattr(self.bound()[1] if self._bound is None else self._bound, name)

    def bound(self) -> tuple[InferenceSession, Any]:
        """The session for the shapes that are bound, and its own binding of all of it."""
        session = self._graphs.for_shapes(self._shapes)
        if session is not self._session:
            self._session, self._bound = session, session.own_binding()
            for bind in (*self._inputs.values(), *self._outputs.values()):
                bind(self._bound)
        return session, self._bound

    def _bind(self, calls: dict[str, Callable[[Any], None]], method: str, *arguments: Any, **keywords: Any) -> None:
        def call(binding: Any) -> None:
            getattr(binding, method)(*arguments, **keywords)

        calls[arguments[0]] = call
        if self._bound is not None:
            call(self._bound)


def _key(shapes: Mapping[str, tuple[int, ...]]) -> _Key:
    return tuple(sorted(shapes.items()))
