"""How do I load a model with less memory, and change nothing else? `onnxmem.InferenceSession` for onnxruntime's."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import onnxruntime

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.runtime.modes import DISABLE_PREPACKING, Mode, Setting, check_mode, check_version, find_mode, refuse_unsafe
from onnxmem.runtime.options import WATCHED, applied, entries
from onnxmem.runtime.package import Package, open_package
from onnxmem.runtime.trim import trim

_CPU = "CPUExecutionProvider"


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's session: the same arguments and methods, made from a model or from a package's folder.

    A package is loaded in its own mode, a model as stock; `mode` says otherwise. The mode's settings come on top of
    `sess_options`, which stays as it was, and on top of them `settings` (attributes of SessionOptions) and `config`
    (its entries). `package` is the package, if there is one.
    """

    def __init__(
        self,
        model: str | bytes | os.PathLike[str],
        sess_options: Any = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        mode: str | None = None,
        settings: Mapping[str, Setting] | None = None,
        config: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        self.package, self._mode = _choose(model, mode)
        self._options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        made = self.package.manifest if self.package else None
        self._settings = {**(made.options if made else {}), **self._mode.options, **(settings or {})}
        self._config = {**(made.config if made else {}), **self._mode.config, **(config or {})}
        check_version(self._mode, onnxruntime.__version__)
        if self.package:
            self.package.check_here(onnxruntime.__version__)
            providers = _only_cpu(providers, self.package)
            model = self.package.model
        with self._prepared(from_bytes=isinstance(model, bytes)):
            super().__init__(model, self._options, providers, provider_options, **kwargs)

    @property
    def loaded_mode(self) -> str:
        """The name of the mode it was loaded in."""
        return self._mode.name

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Make the session again with other providers, as onnxruntime's does, in the same mode."""
        if self.package:
            providers = _only_cpu(providers, self.package)
        with self._prepared(from_bytes=False):
            super().set_providers(providers, provider_options)

    @contextmanager
    def _prepared(self, *, from_bytes: bool) -> Iterator[None]:
        """The mode's settings while a session is made, and its traces removed afterwards."""
        # A mode with an allocator of its own (`planned`) would begin here and end after the session is made.
        with applied(self._options, self._settings, self._config):
            watched = entries(self._options, WATCHED)
            refuse_unsafe(watched, from_bytes=from_bytes)
            if self._mode.form == "prepacked" and watched.get(DISABLE_PREPACKING) == "1":
                raise UsageError("a prepacked package with packing disabled would ignore its packed weights")
            yield
        if self._mode.trim:
            # What loading has freed (a weight that was packed and dropped, a parsed graph) stays in the heap otherwise.
            trim()


def _choose(model: str | bytes | os.PathLike[str], mode: str | None) -> tuple[Package | None, Mode]:
    """The package, if it is one, and the mode."""
    if isinstance(model, bytes):
        chosen = find_mode(mode or "stock")
        if chosen.form != "any":
            raise UsageError(f"mode '{chosen.name}' maps files, and a model in bytes has none", hint="give its path")
        return None, chosen
    path = Path(model)
    if not path.is_dir():
        return None, check_mode(mode or "stock", path)
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
        if name != _CPU:
            raise RuntimeUnsupported(
                f"the package '{package.folder}' is for {_CPU}, not for {name}", hint="load the .onnx file instead"
            )
    return providers or [_CPU]
