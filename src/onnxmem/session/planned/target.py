"""Where does a session run, on the host or on a CUDA device, and can its runs be planned there?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import onnxruntime

from onnxmem._native import arena as native
from onnxmem.errors import RuntimeUnsupported
from onnxmem.session.modes import CPU, CPU_PROVIDERS, CUDA
from onnxmem.session.options import entries
from onnxmem.session.planned import bridge

if TYPE_CHECKING:
    from collections.abc import Iterator

_DRIVER = "libcuda.so.1"
_STREAMS = "session.node_partition_config_file"
_NO_LIMIT = 2**64 - 1


class Target(NamedTuple):
    """Where a session's runs are planned."""

    device: native.Device | None = None
    """None: on the host."""
    synchronizes: bool = True
    """Whether a run is over on the device when it ends; otherwise the device is waited for where it matters."""


def target_of(options: Any, providers: Any, provider_options: Any = None) -> Target:
    """Where a session with these options and providers is planned; RuntimeUnsupported, with the reason, if it cannot
    be.
    """
    asked = dict(_asked(providers, provider_options))
    if reason := _why_not(options, asked) or bridge.unsupported():
        raise RuntimeUnsupported(reason)
    return _on_cuda(options, asked[CUDA]) if CUDA in asked else Target()


def _why_not(options: Any, asked: Mapping[str, Any]) -> str:
    """Why a session cannot be planned, wherever it runs; empty if it can be."""
    if options.execution_mode == onnxruntime.ExecutionMode.ORT_PARALLEL:
        return "nodes run in parallel, so that no two runs ask in the same order"
    if getattr(options, "has_providers", bool)():
        return f"plans are for {CPU}, and the session options choose other providers"
    others = [name for name in asked if name not in (CUDA, *CPU_PROVIDERS)]
    return f"plans are for {CPU} and {CUDA}, and {others[0]} was asked for" if others else ""


def _asked(providers: Any, provider_options: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The providers that a session will have, with their options."""
    there, more = onnxruntime.get_available_providers(), list(provider_options or ())
    for position, provider in enumerate(there if providers is None else providers):
        name, its = (provider, {}) if isinstance(provider, str) else (provider[0], dict(*provider[1:2]))
        if name in there:  # others are ignored by ONNX Runtime, too, and it says so itself
            yield name, {**its, **(more[position] if position < len(more) else {})}


def _on_cuda(options: Any, asked: Mapping[str, Any]) -> Target:
    if reason := _why_not_on_cuda(options, asked):
        raise RuntimeUnsupported(reason)
    try:
        device = native.open_device(_number(asked.get("device_id")), _DRIVER)
    except RuntimeError as error:
        raise RuntimeUnsupported(str(error)) from error
    return Target(device, synchronizes=not _number(asked.get("user_compute_stream")))


def _why_not_on_cuda(options: Any, asked: Mapping[str, Any]) -> str:
    if _is_on(asked.get("enable_cuda_graph")):
        return "CUDA graphs keep the addresses that they were captured with"
    if _number(asked.get("gpu_external_alloc")):
        return "gpu_external_alloc gives the device an allocator already"
    if 0 < _number(asked.get("gpu_mem_limit")) < _NO_LIMIT:
        return "gpu_mem_limit is a limit for ONNX Runtime's own arena"
    if entries(options, [_STREAMS]).get(_STREAMS):
        return "its nodes are spread over several streams"
    return ""


def _is_on(value: Any) -> bool:
    return str(value).lower() in ("1", "true")


def _number(value: Any) -> int:
    """An option's number, which may be given as text; 0 if it is not given."""
    try:
        return int(value or 0)
    except ValueError:
        return 0  # ONNX Runtime says what is wrong with it
