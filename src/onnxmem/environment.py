"""Where was it measured? Versions, machine and allocator settings: two results compare only if these are the same."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from onnxmem.documents import Record

# Variables that change how memory is taken or given back, or how many threads do it.
_VARIABLES = ("LD_PRELOAD", "GLIBC_TUNABLES", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_PREFIXES = ("MALLOC_", "ORT_", "MIMALLOC_", "TCMALLOC_", "JEMALLOC_")


@dataclass(frozen=True, kw_only=True)
class Environment(Record):
    """All that can change a figure besides the model and the request."""

    system: str
    kernel: str
    libc: str
    python: str
    onnxmem: str
    onnxruntime: str
    numpy: str
    cpu: str
    cores: int
    """Cores this process may use."""
    memory_bytes: int | None
    page_bytes: int
    huge_pages: str
    """The kernel's setting for transparent huge pages, which can make small allocations resident in large steps."""
    variables: Mapping[str, str]
    """Those that change how memory is taken or given back, or how many threads do it."""

    def differences(self, other: Environment) -> tuple[str, ...]:
        """The names of what differs: if there are any, figures should not be compared without saying so."""
        return tuple(name for name, value in self.__dict__.items() if value != getattr(other, name))


def read_environment(onnxruntime: str | None = None) -> Environment:
    """The environment of this process and its children; `onnxruntime` is the version the child said it had."""
    return Environment(
        system=sys.platform,
        kernel=platform.release(),
        libc=" ".join(platform.libc_ver()).strip(),
        python=platform.python_version(),
        onnxmem=package_version("onnxmem"),
        onnxruntime=onnxruntime or package_version("onnxruntime"),
        numpy=package_version("numpy"),
        cpu=_cpu(),
        cores=available_cores(),
        memory_bytes=_memory(),
        page_bytes=os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096,
        huge_pages=_huge_pages(),
        variables={k: v for k, v in sorted(os.environ.items()) if k in _VARIABLES or k.startswith(_PREFIXES)},
    )


def available_cores() -> int:
    """The processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def package_version(package: str) -> str:
    """The version of an installed package."""
    # Late: it imports a mail parser, and sessions that only know their own records would have it, too.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.lower().startswith(("model name", "hardware")))
    return next(named, platform.machine())


def _memory() -> int | None:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _huge_pages() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "unknown"
    return text[text.find("[") + 1 : text.find("]")] if "[" in text else text.strip()
