"""How do I run a model with less memory, and change nothing else? `onnxmem.InferenceSession` for onnxruntime's."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import onnxruntime

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.session.modes import (
    CPU,
    CPU_PROVIDERS,
    DISABLE_PREPACKING,
    Mode,
    Setting,
    check_mode,
    check_version,
    find_mode,
    refuse_unsafe,
)
from onnxmem.session.options import WATCHED, applied, apply, entries
from onnxmem.session.planning import PlanningOptions
from onnxmem.session.trim import trim
from onnxmem.unknown import Unknown

if TYPE_CHECKING:  # imported where something is planned, or is a package: it would count as memory of all others
    from onnxmem.session.memory import SessionMemory
    from onnxmem.session.package import Package
    from onnxmem.session.planned.arena import Arena
    from onnxmem.session.planned.planner import Planner
    from onnxmem.session.planned.source import Source
    from onnxmem.session.planned.trace import Trace

_PLANNED = "planned"
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
        planning: PlanningOptions | None = None,
        arena: Arena | None = None,
        plans: Iterable[Mapping[str, Any]] | None = None,
        max_plans: int | None = None,
        plan_seconds: float | None = None,
        trim_after: float | None = None,
        huge_pages: bool | None = None,
        sharing: bool | None = None,
        keep_plans: bool | None = None,
        debug: bool | None = None,
        **kwargs: Any,
    ) -> None:
        if kwargs:
            _check_spelling(kwargs)
        self.package, self._mode = _choose(path_or_bytes, mode)
        self._options_are_ours = sess_options is None
        self._options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        manifest = self.package.manifest if self.package else None
        self._settings = {**(manifest.options if manifest else {}), **self._mode.options, **(settings or {})}
        self._config = {**(manifest.config if manifest else {}), **self._mode.config, **(config or {})}
        check_version(self._mode, onnxruntime.__version__)
        self._to_be_planned = _is_planned(mode)
        keywords = PlanningOptions.of(locals())
        if planning is not None and keywords.given:
            raise UsageError(f"{keywords.given[0]}= stands beside planning=", hint="put it into the PlanningOptions")
        self._planning = planning or keywords
        self._planner: Planner | None = None
        self._unplanned = "" if self._to_be_planned else f"mode '{mode}' does not plan"
        if self._planning.given and not self._to_be_planned:
            raise UsageError(f"{self._planning.given[0]}= is for planned runs, and {self._unplanned}")
        if self.package:
            if self._to_be_planned and self._planning.plans is None:
                self._planning = replace(self._planning, plans=self.package.plans())
            self.package.check_here(onnxruntime.__version__)
            providers = _only_cpu(providers, self.package)
            path_or_bytes = self.package.model
        self._source, self._content = _look_at(path_or_bytes, self._planning) if self._to_be_planned else (None, "")
        if provider_options or any(not isinstance(provider, str) for provider in providers or ()):
            self._content = ""  # nobody knows what those change
        with self._prepared(providers, provider_options, from_bytes=isinstance(path_or_bytes, bytes)):
            super().__init__(path_or_bytes, self._options, providers, provider_options, **kwargs)

    # What runs.

    def run(self, output_names: Any, input_feed: Any, run_options: Any = None) -> Any:
        """Compute outputs, as onnxruntime's `run` does."""
        if self._planner is None:
            return super().run(output_names, input_feed, run_options)
        return self._planner.run(super().run, output_names, input_feed, run_options)

    def run_with_ort_values(self, output_names: Any, input_dict_ort_values: Any, run_options: Any = None) -> Any:
        """Compute outputs from OrtValues, as onnxruntime's does."""
        if self._planner is None:
            return super().run_with_ort_values(output_names, input_dict_ort_values, run_options)
        return self._planner.run(super().run_with_ort_values, output_names, input_dict_ort_values, run_options)

    def run_with_iobinding(self, iobinding: Any, run_options: Any = None) -> None:
        """Compute what is bound, as onnxruntime's does."""
        if self._planner is None:
            super().run_with_iobinding(iobinding, run_options)
        else:
            self._planner.run_bound(super().run_with_iobinding, iobinding, run_options)

    def io_binding(self) -> Any:
        """A binding; a planned session's remembers the shapes bound to it, so that each is planned for itself."""
        return super().io_binding() if self._planner is None else self._planner.binding(self)

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again with other providers, as onnxruntime's does, in the same mode; plans start anew."""
        if self.package:
            providers = _only_cpu(providers, self.package)
        with self._prepared(providers, provider_options, from_bytes=False):
            super().set_providers(providers, provider_options)

    # What it takes.

    @property
    def loaded_mode(self) -> str:
        """The name of the mode it really is in: a session that could not be planned says what it is instead."""
        return self._mode.name if self._planner is None else _PLANNED

    @property
    def memory(self) -> SessionMemory:
        """What it takes to run, and how its runs were served; or why it is not planned."""
        from onnxmem.session.memory import SessionMemory  # noqa: PLC0415

        if self._planner is None:
            reason = self._unplanned or "the session was released"
            none = Unknown(reason)
            return SessionMemory(reason=reason, arena_bytes=none, plan_bytes=none, bound_bytes=none)
        return self._planner.memory

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
        return [] if self._planner is None else self._planner.traces()

    def export_plans(self) -> list[dict[str, Any]]:
        """The plans as plain data, for `plans` of another session of the same model."""
        return [] if self._planner is None else self._planner.book.documents()

    # How it is made.

    @contextmanager
    def _prepared(self, providers: Any, provider_options: Any, *, from_bytes: bool) -> Iterator[None]:
        """The mode's settings, and the allocator that plans need, while a session is made; gone again afterwards."""
        with ExitStack() as while_made:
            self._planner = self._plan(providers, provider_options, while_made) if self._to_be_planned else None
            if self._options_are_ours:
                apply(self._options, self._settings, self._config)
            else:
                while_made.enter_context(applied(self._options, self._settings, self._config))
            watched = entries(self._options, WATCHED)
            refuse_unsafe(watched, from_bytes=from_bytes)
            if self._mode.form == "prepacked" and watched.get(DISABLE_PREPACKING) == "1":
                raise UsageError("a prepacked package with packing disabled would ignore its packed weights")
            yield
        if self._planner is not None:
            self._look_where_it_is(self._planner)
        if self._planner is not None or self._mode.trim:
            # What loading has freed (a weight that was packed and dropped, a parsed graph) stays in the heap otherwise.
            trim()
        if self._planner is not None and self.package is not None:
            from onnxmem.session.package import WEIGHTS  # noqa: PLC0415
            from onnxmem.session.prefault import prefault  # noqa: PLC0415

            prefault(self.package.folder / WEIGHTS, self.package.manifest.always_read)

    def _look_where_it_is(self, planner: Planner) -> None:
        """No plans for a device that ONNX Runtime could not use and, but for a line on the terminal, left out."""
        if planner.device is None:
            return
        from onnxmem.session.planned.target import CUDA  # noqa: PLC0415

        if CUDA in self.get_providers():
            planner.device.trim()
        else:
            self._planner = None
            self._unplanned = f"ONNX Runtime could not load {CUDA}, and runs on the CPU"
            self._say_why(stacklevel=6)

    def _plan(self, providers: Any, provider_options: Any, while_made: ExitStack) -> Planner | None:
        """A planner, with its allocator in place while the session is made; None, and a warning, if it cannot be."""
        try:
            from onnxmem.session.planned import made  # noqa: PLC0415
            from onnxmem.session.planned.planner import Planner  # noqa: PLC0415
            from onnxmem.session.planned.target import target_of  # noqa: PLC0415

            with applied(self._options, self._settings, {}):
                target = target_of(self._options, providers, provider_options)
                sharer = made.sharer_of(self._options, self._source) if self._planning.sharing is not False else None
                known = self._content, self._config, self._source
                kept = made.kept_plans(self._options, *known, sharing=sharer is not None)
            self._unplanned = target if isinstance(target, str) else ""
            if not isinstance(target, str):
                # What is optimized already, has one order; what ONNX Runtime makes of others depends on addresses.
                level = self._settings.get("graph_optimization_level")
                packaged = self.package is not None and level == "ORT_DISABLE_ALL"
                if target.device is not None:
                    sharer = kept = (
                        None  # what may be written over what, and what is kept, is known of the CPU's kernels
                    )
                planner = Planner(self._planning, sharer, packaged=packaged, target=target, kept=kept)
                while_made.enter_context(made.made_for_plans(self._options, planner))
                return planner
        except ImportError as error:
            self._unplanned = f"the planner cannot be imported: {error}"
        except RuntimeUnsupported as error:
            self._unplanned = str(error)
        self._say_why(stacklevel=6)
        return None

    def _say_why(self, *, stacklevel: int) -> None:
        """Warn whoever makes the session."""
        if self._unplanned not in _WARNED:
            _WARNED.add(self._unplanned)
            text = f"this session is not planned, it runs as {self._mode.name}: {self._unplanned}"
            warnings.warn(text, RuntimeWarning, stacklevel=stacklevel)


def _look_at(model: str | bytes | os.PathLike[str], planning: PlanningOptions) -> tuple[Source | None, str]:
    """What is certain about a model; and a name for its content, if its plans are kept."""
    if planning.sharing is False and not planning.keeps:
        return None, ""
    from onnxmem.session.planned.source import look_at  # noqa: PLC0415  only planned sessions ask

    source = look_at(model)
    if not (planning.keeps and source.own_operators):
        return source, ""
    from onnxmem.session.planned.identity import content_of  # noqa: PLC0415

    return source, content_of(model)


def _check_spelling(unknown: Iterable[str]) -> None:
    """onnxruntime ignores arguments it does not know; one that is nearly ours was meant for us."""
    from difflib import get_close_matches  # noqa: PLC0415
    from inspect import signature  # noqa: PLC0415

    for name in unknown:
        if meant := get_close_matches(name, signature(InferenceSession).parameters, 1, 0.8):
            raise UsageError(f"there is no argument '{name}'", hint=f"{meant[0]}=")


def _is_planned(mode: str | None) -> bool:
    """Whether a session asked for in this mode is planned, where it can be: if nobody says otherwise, it is."""
    return mode in (None, _PLANNED)


def _choose(model: str | bytes | os.PathLike[str], mode: str | None) -> tuple[Package | None, Mode]:
    """The package, if it is one, and the mode; for a planned session, the one that plans come on top of."""
    if _is_planned(mode):
        mode = None
    if isinstance(model, bytes):
        chosen = find_mode(mode or "stock")
        if chosen.form != "any":
            raise UsageError(f"mode '{chosen.name}' maps files, and a model in bytes has none", hint="give its path")
        return None, chosen
    if not os.path.isdir(model):  # noqa: PTH112  pathlib is half a MiB, and most models are files
        chosen = find_mode(mode or "stock")
        if chosen.form != "any":
            from pathlib import Path  # noqa: PLC0415

            check_mode(chosen.name, Path(model))
        return None, chosen
    from pathlib import Path  # noqa: PLC0415

    from onnxmem.session.package import open_package  # noqa: PLC0415

    path = Path(model)
    package = open_package(path)
    if mode is None or mode == package.manifest.mode:
        return package, package.mode
    chosen, form = find_mode(mode), package.mode.form
    # A prepacked model is one with external weights, too.
    if chosen.form in (form, "any") or (form, chosen.form) == ("prepacked", "external"):
        return package, chosen
    raise UsageError(
        f"mode '{mode}' cannot load '{path}', which was packed for '{package.manifest.mode}'",
        hint=f"pack it again with --mode {mode}",
    )


def _only_cpu(providers: Any, package: Package) -> Any:
    """Packages are optimized for the CPU: others would be given a graph that is not for them."""
    for provider in providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name not in CPU_PROVIDERS:
            raise RuntimeUnsupported(
                f"the package '{package.folder}' is for {CPU}, not for {name}", hint="load the .onnx file instead"
            )
    return [CPU]
