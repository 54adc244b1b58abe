"""How do I run a model with less memory, and change nothing else? `onnxmem.InferenceSession` for onnxruntime's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnxruntime

from onnxmem.errors import ModelError, RuntimeUnsupported, UsageError
from onnxmem.session.choosing import (
    PLANNED,
    asks_for_cuda,
    check_spelling,
    choose,
    is_planned,
    known_of,
    only_cpu,
    read_again,
)
from onnxmem.session.modes import CUDA, DISABLE_PREPACKING, Setting, check_version, refuse_unsafe
from onnxmem.session.options import WATCHED, alone, applied, apply, entries
from onnxmem.session.planning import PlanningOptions
from onnxmem.session.trim import trim
from onnxmem.unknown import Unknown

if TYPE_CHECKING:  # imported where something is planned, or is a package: it would count as memory of all others
    from onnxmem._native.arena import Device
    from onnxmem.session.chunks import Chunks
    from onnxmem.session.graphs import Graphs
    from onnxmem.session.memory import SessionMemory
    from onnxmem.session.packed_graphs import TiledGraph
    from onnxmem.session.planned.arena import Arena
    from onnxmem.session.planned.planner import Planner
    from onnxmem.session.planned.trace import Trace

_WARNED: set[str] = set()
"""Reasons for not planning that were given already: once per process is enough."""


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's session: the same arguments, methods and outputs, made from a model or from a package's folder.

    It runs inside a plan: the first run of each combination of input shapes records what the model asks for, its
    placement is solved, and later runs happen at those places in one arena; in later processes (`keep_plans`), all of
    them do. Where that cannot be, it runs as stock (a package in its own mode), warns once, and `memory.reason` says
    why. `mode` asks for another way to load and run.

    The mode's settings come on top of `sess_options`, which stays as it was, and on top of them `settings` (attributes
    of SessionOptions) and `config` (its entries). `package` is the package, if there is one.

    With `tile`, a model with fixed input shapes runs from a package with tiles (see `onnxmem.pack`), which is made the
    first time and kept in the user's cache folder: that takes a while, and the disk space of the weights. On a GPU it
    is rewritten in this process, if `exact=False` allows pieces that are rounded otherwise.

    `planning` says how runs are planned; its fields may be given as keywords of their own instead, and are explained
    there: `onnxmem.PlanningOptions`.
    """

    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        mode: str | None = None,
        settings: Mapping[str, Setting] | None = None,
        config: Mapping[str, str] | None = None,
        tile: bool = False,
        planning: PlanningOptions | None = None,
        arena: Arena | None = None,
        plans: Iterable[Mapping[str, Any]] | None = None,
        max_plans: int | None = None,
        plan_seconds: float | None = None,
        trim_after: float | None = None,
        huge_pages: bool | None = None,
        sharing: bool | None = None,
        budget: int | str | None = None,
        exact: bool | None = None,
        keep_plans: bool | None = None,
        debug: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            from inspect import signature  # noqa: PLC0415

            check_spelling(kwargs, signature(InferenceSession).parameters)
        if tile:
            from onnxmem.session.tile_cache import tiled_package  # noqa: PLC0415

            if not is_planned(mode):
                raise UsageError(f"tile=True is for planned runs, and mode '{mode}' does not plan")
            if exact is False and asks_for_cuda(providers):
                from onnxmem.session.device_tiles import HOW, tiled_for  # noqa: PLC0415  it needs what parses models

                path_or_bytes = tiled_for(path_or_bytes, providers, provider_options)
                settings, config = {**HOW[0], **(settings or {})}, {**HOW[1], **(config or {})}
            else:
                only_cpu(providers, "tile=True", "exact=False allows pieces that are rounded otherwise")
                path_or_bytes = tiled_package(path_or_bytes)
        self.package, self._mode = choose(path_or_bytes, mode)
        self._options_are_ours = sess_options is None
        self._options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        self._given = (settings or {}, config or {})
        check_version(self._mode, onnxruntime.__version__)
        self._to_be_planned = is_planned(mode)
        keywords = PlanningOptions.of(locals())
        if planning is not None and keywords.given:
            raise UsageError(f"{keywords.given[0]}= stands beside planning=", hint="put it into the PlanningOptions")
        self._planning = planning or keywords
        self._planner: Planner | None = None
        self._chunks: Chunks | None = None
        self._unplanned = "" if self._to_be_planned else f"mode '{mode}' does not plan"
        if self._planning.given and not self._to_be_planned:
            raise UsageError(f"{self._planning.given[0]}= is for planned runs, and {self._unplanned}")
        if self.package:
            self.package.check_here(onnxruntime.__version__)
            providers = only_cpu(providers, f"the package '{self.package.folder}'")
        self._how = (providers, provider_options, kwargs)
        self._graphs: Graphs | None = None
        self.graph: TiledGraph | None = None
        """The graph of its package that is loaded; None: the package's own, or there is no package."""
        tiled, most = self.package.manifest.tiled if self.package else (), self._planning.budget
        if most is not None:
            tiled = tuple(graph for graph in tiled if graph.peak_bytes <= int(most))
        self._load(path_or_bytes, tiled[0] if tiled and self._to_be_planned else None)
        if self.graph is not None:
            from onnxmem.session.graphs import Graphs  # noqa: PLC0415  few packages have several

            self._graphs = Graphs(self, tiled)

    # What runs.

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Compute outputs, as onnxruntime's `run` does; with a budget, a few rows of a batch at a time if need be."""
        if self._graphs is not None and (session := self._graphs.for_feeds(input_feed)) is not self:
            return session.run(output_names, input_feed, run_options)
        output_names = read_again(output_names)
        if self._chunks is not None:
            return self._chunks.run(self, output_names, input_feed, run_options)
        return self.run_whole(output_names, input_feed, run_options)

    def run_whole(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Compute outputs of all rows at once with the graph that is loaded, whatever the budget is."""
        if self._planner is None:
            return super().run(output_names, input_feed, run_options)
        return self._planner.run(super().run, output_names, input_feed, run_options)

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """Compute outputs from OrtValues, as onnxruntime's does."""
        if self._graphs is not None and (session := self._graphs.for_feeds(input_dict_ort_values)) is not self:
            return session.run_with_ort_values(output_names, input_dict_ort_values, run_options)
        if self._planner is None:
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        output_names = read_again(output_names)
        return self._planner.run(super().run_with_ort_values, output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute what is bound, as onnxruntime's does."""
        if self._graphs is not None and hasattr(iobinding, "bound"):
            session, iobinding = iobinding.bound()
            if session is not self:
                session.run_with_iobinding(iobinding, run_options)
                return
        if self._planner is None:
            super().run_with_iobinding(iobinding, run_options)
        else:
            self._planner.run_bound(super().run_with_iobinding, iobinding, run_options)

    def run_async(
        self, output_names: Any, input_feed: Any, callback: Any, user_data: Any, run_options: Any = None
    ) -> Any:
        """Compute outputs in another thread, as onnxruntime's does. Such runs are not planned."""
        if self._graphs is not None and (session := self._graphs.of(None)) is not self:
            return session.run_async(output_names, input_feed, callback, user_data, run_options)
        self._end_profile()
        return super().run_async(output_names, input_feed, callback, user_data, run_options)

    def run_with_ortvaluevector(self, *arguments: Any) -> None:
        """Compute what is in these vectors, as onnxruntime's does. Such runs are not planned."""
        if self._graphs is not None and (session := self._graphs.of(None)) is not self:
            session.run_with_ortvaluevector(*arguments)
        else:
            self._end_profile()
            super().run_with_ortvaluevector(*arguments)

    def end_profiling(self) -> Any:
        """End the caller's profile, as onnxruntime's does; not the one that plans begin with."""
        self._end_profile()
        return super().end_profiling()

    def _end_profile(self) -> None:
        if self._planner is not None:
            self._planner.end_profile(self)

    def io_binding(self) -> Any:
        """A binding; a planned session's remembers the shapes bound to it, so that each is planned for itself."""
        if self._graphs is not None:
            from onnxmem.session.graphs import GraphBinding  # noqa: PLC0415

            return GraphBinding(self, self._graphs)
        return self.own_binding()

    def own_binding(self) -> Any:
        """A binding to the graph that is loaded."""
        return super().io_binding() if self._planner is None else self._planner.binding(self)

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again with other providers, as onnxruntime's does, in the same mode; plans start anew."""
        if self.package:
            providers = only_cpu(providers, f"the package '{self.package.folder}'")
        self._set_providers(providers, provider_options)

    def _set_providers(self, providers: Any, provider_options: Any) -> None:
        if self.package is not None:
            self._how = (providers, provider_options, self._how[2])
            self._load_graph(self.graph)
            return
        with self._prepared(providers, provider_options, from_bytes=False):
            super().set_providers(providers, provider_options)

    # What it takes.

    @property
    def loaded_mode(self) -> str:
        """The name of the mode it really is in: a session that could not be planned says what it is instead."""
        return self._mode.name if self._planner is None else PLANNED

    @property
    def memory(self) -> SessionMemory:
        """What it takes to run, and how its runs were served; or why it is not planned."""
        from onnxmem.session.memory import SessionMemory  # noqa: PLC0415

        if self._planner is None:
            reason = self._unplanned or "the session was released"
            none = Unknown(reason)
            return SessionMemory(reason=reason, arena_bytes=none, plan_bytes=none, bound_bytes=none)
        memory = self._planner.memory
        if self._chunks is not None:
            batch = self._chunks.batch
            unsplit = batch.reason if isinstance(batch, Unknown) else ""
            memory = replace(memory, budget=self._chunks.budget, unsplit=unsplit, batches=self._chunks.memory)
        others = self._graphs.loaded[1:] if self._graphs else []
        return memory.with_others([session.memory for session in others])

    @property
    def arena(self) -> Arena | None:
        """The memory it runs in, if it is planned."""
        return None if self._planner is None else self._planner.arena

    def trim(self) -> None:
        """Give the free heap and, if it is planned, the arena's pages back; the next run takes them again."""
        if self._planner is None:
            trim()
        else:
            self._planner.arena.trim()

    def traces(self) -> list[Trace]:
        """What the model asked for, one trace per shape that is planned."""
        others = self._graphs.loaded[1:] if self._graphs else []
        own = [] if self._planner is None else self._planner.traces()
        return [*own, *(trace for session in others for trace in session.traces())]

    def export_plans(self) -> list[dict[str, Any]]:
        """The plans as plain data, for `plans` of another session of the same model; not those of tiled graphs."""
        loaded = self._graphs.loaded if self._graphs else [self]
        plain = [session._planner for session in loaded if session.graph is None]
        return [document for planner in plain if planner for document in planner.book.documents()]

    # How it is made.

    def _load_graph(self, graph: TiledGraph | None) -> None:
        """Load another graph of the package in the place of the one that is loaded."""
        assert self.package is not None
        self._sess = None  # before the other one is there
        self._load(self.package.model, graph)

    def _beside(self, graph: TiledGraph | None) -> InferenceSession:
        """Another session, of another graph of the package, in the same arena."""
        assert self.package is not None
        other = copy(self)
        other._graphs = other._sess = other._planner = None
        other._planning = replace(self._planning, arena=self.arena, trim_after=None, huge_pages=None)
        other._load(self.package.model, graph)
        return other

    def _load(self, model: str | bytes | os.PathLike[str], graph: TiledGraph | None) -> None:
        providers, provider_options, more = self._how
        if self.package is not None:  # there is nothing to fall back to, and it would be said on stdout
            more = {"enable_fallback": 0, **more}
        self._chunks = None
        self._use(model, graph)
        whole = self.package.unchanged() if self.package else nullcontext()
        # Of all locks, that of the weights' file comes last: whoever has it waits for no other.
        with self._prepared(providers, provider_options, from_bytes=isinstance(model, bytes)), self._mapped(), whole:
            try:
                super().__init__(self._model, self._options, providers, provider_options, **more)
            except UnicodeDecodeError as error:  # of what ONNX Runtime says of a damaged name
                raise ModelError("the model is damaged: a name in it is not text") from error
        if self._planner is not None:
            self._planner.outputs = frozenset(value.name for value in self.get_outputs())
        if self.graph is not None and self.package is not None:
            # What is loaded is for fixed shapes, and the package is not.
            names = [value.name for value in (*self.get_inputs(), *self.get_outputs())]
            self._inputs_meta, self._outputs_meta = self.package.declared(self.graph, names)

    def _use(self, model: str | bytes | os.PathLike[str], graph: TiledGraph | None) -> None:
        """What the session will be made from, and with which settings."""
        settings, config = self._given
        self._model, self.graph, self._plans = model, graph, self._planning.plans
        self._settings = {**self._mode.options, **settings}
        self._config = {**self._mode.config, **config}
        if self.package:
            part = self.package.graph(graph)
            self._model = part.model
            self._settings, self._config = {**part.options, **self._settings}, {**part.config, **self._config}
            if graph is not None:  # it runs as it was written, whatever the caller says
                self._settings, self._config = {**self._settings, **part.options}, {**self._config, **part.config}
            if self._to_be_planned and (self._plans is None or graph is not None):
                self._plans = part.plans()
        self._source, self._content = known_of(self._model, self._planning) if self._to_be_planned else (None, "")
        providers, provider_options, _ = self._how
        if provider_options or any(not isinstance(provider, str) for provider in providers or ()):
            self._content = ""  # nobody knows what those change

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        """The weights of a package are mapped when the session is made, and in memory if its runs are planned."""
        if self.package is None:
            yield
            return
        from onnxmem.session.mapped import check_mapped, making  # noqa: PLC0415
        from onnxmem.session.package import WEIGHTS  # noqa: PLC0415
        from onnxmem.session.prefault import prefault  # noqa: PLC0415

        file = self.package.folder / WEIGHTS
        with making(self, file) as own:
            yield
            mappings, graph = own(), self.package.graph(self.graph)
            check_mapped(file, mappings, graph.always_mapped)
            if self._planner is not None:
                prefault(mappings, graph.always_read)

    @contextmanager
    def _prepared(self, providers: Any, provider_options: Any, *, from_bytes: bool) -> Iterator[None]:
        """The mode's settings, and the allocator that plans need, while a session is made; gone again afterwards."""
        with ExitStack() as while_made:
            while_made.enter_context(alone(self._options))
            self._planner = self._plan(providers, provider_options, while_made) if self._to_be_planned else None
            if self._planner is None and self.graph is not None:
                self._unplanned += "; its tiled graphs need plans and are not used"
                self._use(self._model, None)
            if self._options_are_ours:
                apply(self._options, self._settings, self._config)
            else:
                while_made.enter_context(applied(self._options, self._settings, self._config))
            watched = entries(self._options, WATCHED)
            refuse_unsafe(watched, from_bytes=from_bytes)
            if self._mode.form == "prepacked" and watched.get(DISABLE_PREPACKING) == "1":
                raise UsageError("a prepacked package with packing disabled would ignore its packed weights")
            yield
        if self._planner is not None and self._planner.device is not None:
            self._check_device(self._planner.device)
        # A package's own graph keeps to its budget where that can be; the caller's is kept to or refused.
        own = self.package.manifest.batch_budget if self.package and self.graph is None and self._planner else None
        budget = own if self._planning.budget is None else int(self._planning.budget)
        if budget is not None:
            packed = watched.get(DISABLE_PREPACKING) != "1"
            self._chunks = self._within_budget(budget, packed=packed, strict=self._planning.budget is not None)
        if self._planner is not None or self._mode.trim:
            # What loading has freed (a weight that was packed and dropped, a parsed graph) stays in the heap otherwise.
            trim()

    def _check_device(self, device: Device) -> None:
        """No plans for a device that ONNX Runtime could not use and, but for a line on the terminal, left out."""
        if CUDA in self.get_providers():
            device.trim()  # what loading took beside the weights
        else:
            self._leave_to_stock(f"ONNX Runtime could not load {CUDA}, and runs on the CPU")

    def _within_budget(self, budget: int, *, packed: bool, strict: bool) -> Chunks:
        """What keeps runs to the budget."""
        exact = self._planning.exact is not False
        if self._planner is None:
            raise RuntimeUnsupported(f"a budget cannot be kept: {self._unplanned}", hint="leave budget= out")
        if self._planner.device is not None and exact:
            why = "on a GPU the parts of a batch may be rounded otherwise than all of it"
            raise RuntimeUnsupported(f"a budget cannot be kept: {why}", hint="exact=False allows that")
        from onnxmem.session.chunks import Chunks, batch_of  # noqa: PLC0415  it needs what parses models

        threads = self._options.intra_op_num_threads or len(os.sched_getaffinity(0))
        batch = self._chunks.batch if self._chunks else batch_of(self._model, packed=packed)
        return Chunks(budget, batch, self._planner, threads, strict=strict, exact=exact)

    def _plan(self, providers: Any, provider_options: Any, while_made: ExitStack) -> Planner | None:
        """A planner, with its allocator in place while the session is made; None, and a warning, if it cannot be."""
        self._unplanned = ""
        try:
            from onnxmem.session.planned import made  # noqa: PLC0415
            from onnxmem.session.planned.planner import Planner  # noqa: PLC0415
            from onnxmem.session.planned.target import target_of  # noqa: PLC0415

            sharer = kept = None
            with applied(self._options, self._settings, {}):
                target = target_of(self._options, providers, provider_options)
                if target.device is None:  # which buffers may share a place is known of the CPU's kernels
                    if self._planning.sharing is not False:
                        sharer = made.sharer_of(self._options, self._source)
                    known = self._content, self._config, self._source
                    kept = made.kept_plans(self._options, *known, sharing=sharer is not None)
            # What is optimized already, has one order; what ONNX Runtime makes of others depends on addresses.
            level = self._settings.get("graph_optimization_level")
            packaged = self.package is not None and level == "ORT_DISABLE_ALL"
            planning = replace(self._planning, plans=self._plans)
            planner = Planner(planning, sharer, packaged=packaged, kept=kept, target=target)
            while_made.enter_context(made.made_for_plans(self._options, planner))
            return planner
        except ImportError as error:
            self._leave_to_stock(f"the planner cannot be imported: {error}")
        except RuntimeUnsupported as error:
            self._leave_to_stock(str(error))
        return None

    def _leave_to_stock(self, reason: str) -> None:
        self._planner, self._unplanned = None, reason
        if reason not in _WARNED:
            _WARNED.add(reason)
            text = f"this session is not planned, it runs as {self._mode.name}: {reason}"
            warnings.warn(text, RuntimeWarning, stacklevel=7)  # whoever makes the session
