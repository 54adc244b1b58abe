"""What is a session to be made from, and how is it loaded? The caller's words, checked."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import onnxruntime

from onnxmem.errors import RuntimeUnsupported, UsageError
from onnxmem.session.modes import CPU, CPU_PROVIDERS, CUDA, Mode, check_mode, find_mode

if TYPE_CHECKING:  # imported where something is a package: it would count as memory of all others
    from onnxmem.session.package import Package
    from onnxmem.session.planned.source import Source
    from onnxmem.session.planning import PlanningOptions

PLANNED = "planned"


def check_spelling(unknown: Iterable[str], known: Iterable[str]) -> None:
    """onnxruntime ignores arguments it does not know; one that is nearly ours was meant for us."""
    from difflib import get_close_matches  # noqa: PLC0415

    for name in unknown:
        if meant := get_close_matches(name, known, 1, 0.8):
            raise UsageError(f"there is no argument '{name}'", hint=f"{meant[0]}=")


def read_again(output_names: Any) -> Any:
    """Names of outputs that can be read again: ONNX Runtime takes a generator, too, and who looks first uses it up."""
    return list(output_names) if isinstance(output_names, Iterator) else output_names


def is_planned(mode: str | None) -> bool:
    """Whether a session asked for in this mode is planned, where it can be: if nobody says otherwise, it is."""
    return mode in (None, PLANNED)


def choose(model: str | bytes | os.PathLike[str], mode: str | None) -> tuple[Package | None, Mode]:
    """The package, if it is one, and the mode; for a planned session, the one that plans come on top of."""
    if is_planned(mode):
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
    # A graph of it may be loaded later, when the process is elsewhere.
    package = open_package(path.absolute())
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


def only_cpu(providers: Any, what: str, hint: str = "load the .onnx file instead") -> Any:
    """Packages are optimized for the CPU: others would be given a graph that is not for them."""
    for provider in providers or ():
        name = provider if isinstance(provider, str) else provider[0]
        if name not in CPU_PROVIDERS:
            raise RuntimeUnsupported(f"{what} is for {CPU}, not for {name}", hint=hint)
    return [CPU]


def asks_for_cuda(providers: Any) -> bool:
    """Whether these providers are a GPU's, and this ONNX Runtime has them."""
    names = [provider if isinstance(provider, str) else provider[0] for provider in providers or ()]
    return CUDA in names and CUDA in onnxruntime.get_available_providers()


def refuse_fallback(loaded: Iterable[str]) -> None:
    """Where ONNX Runtime cannot use a device it says so in its log, and runs on the CPU instead."""
    if CUDA not in loaded:
        hint = "it needs CUDA and cuDNN of the versions that its release notes name"
        raise RuntimeUnsupported(f"ONNX Runtime could not load {CUDA}", hint=hint)


def known_of(model: str | bytes | os.PathLike[str], planning: PlanningOptions) -> tuple[Source | None, str]:
    """What is certain about a model; and a name for its content, if its plans are kept."""
    if planning.sharing is False and not planning.keeps:
        return None, ""
    from onnxmem.session.planned.source import look_at  # noqa: PLC0415  only planned sessions ask

    source = look_at(model)
    if not (planning.keeps and source.own_operators):
        return source, ""
    from onnxmem.session.planned.identity import content_of  # noqa: PLC0415

    return source, content_of(model)
