"""What a cell meets where it is worked out: its cores, its processor, its GPU."""

from __future__ import annotations

import os
from functools import cache

from onnxmem.environment import available_cores, read_environment
from onnxmem.errors import UsageError
from onnxmem.history.entry import machine_name
from onnxmem.measurement.device import HOST, Gpu, check_device, device_number


def core_sets(parallel: int) -> list[tuple[int, ...]]:
    """The cores of this process in so many equal parts; those left over are used by nobody."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if not 1 <= parallel <= max(len(cores), 1):
        raise UsageError(
            f"{parallel} measurements at a time need {parallel} cores, and there are {len(cores)}",
            hint="each has cores of its own",
        )
    share = len(cores) // parallel
    return [tuple(cores[k * share : (k + 1) * share]) for k in range(parallel)]


@cache
def gpu_name(device: str) -> str:
    """The GPU of a device, and its driver; empty for the CPU. An error if models cannot run there."""
    number = device_number(device)
    check_device(device)
    return "" if number is None else Gpu(number).name


def processor_with(cores: int, device: str = HOST) -> str:
    """What results depend on besides versions: the processor of this machine with so many cores, and the GPU."""
    return machine_name(read_environment().cpu, cores, gpu_name(device))


@cache
def this_processor(device: str = HOST) -> str:
    """The same with the cores that this process has."""
    return processor_with(available_cores(), device)
