"""How do I load a model with less memory, and change nothing else? `onnxmem.InferenceSession` for onnxruntime's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.runtime.modes import DISABLE_PREPACKING, Mode, Setting, check_mode, check_version, find_mode, refuse_unsafe
from onnxmem.runtime.options import WATCHED, apply, entries
from onnxmem.runtime.package import Package, open_package
from onnxmem.runtime.trim import trim

_CPU = "CPUExecutionProvider"


class InferenceSession(onnxruntime.InferenceSession):  # type: ignore[misc]
    """onnxruntime's session: the same arguments and methods, made from a model or from a package's folder.

    A package is loaded in its own mode, a model as stock; `mode` says otherwise. The mode's settings are added to
    `sess_options`; `settings` (attributes of SessionOptions) and `config` (its entries) come on top of the mode's.
    After loading, `loaded_mode` is the name of the mode and `package` the package, if there is one.
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
        package, found = _choose(model, mode)
        options = onnxruntime.SessionOptions() if sess_options is None else sess_options
        check_version(found, onnxruntime.__version__)
        if package:
            package.check_here(onnxruntime.__version__)
            providers = _only_cpu(providers, package)
            apply(options, package.manifest.options, package.manifest.config)
        apply(options, {**found.options, **(settings or {})}, {**found.config, **(config or {})})
        watched = entries(options, WATCHED)
        refuse_unsafe(watched, from_bytes=isinstance(model, bytes))
        if found.form == "prepacked" and watched.get(DISABLE_PREPACKING) == "1":
            raise UsageError("a prepacked package with packing disabled would ignore its packed weights")
        # A mode with an allocator of its own (`planned`) would begin here and end after the session is made.
        super().__init__(package.model if package else model, options, providers, provider_options, **kwargs)
        self.loaded_mode, self.package = found.name, package
        if found.trim:
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
