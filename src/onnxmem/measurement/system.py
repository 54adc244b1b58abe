"""How much memory does the whole system use? For seeing from outside that what a process gave back has arrived."""

from __future__ import annotations

from dataclasses import dataclass

from onnxmem.documents import Record, stored
from onnxmem.measurement import probes
from onnxmem.unknown import Bytes, Unknown


@dataclass(frozen=True)
class System(Record):
    """The system at one moment, in bytes. All processes move these figures."""

    available: Bytes = stored("available_bytes")
    """What a new process could get without swapping.

    Not the place to look for what was just freed: recent kernels keep freed pages in lists of each processor, hundreds
    of MiB of them, and count them as available only when the lists are emptied.
    """
    anon: Bytes = stored("anon_bytes")
    """Anonymous memory of all processes: falls at the moment it is freed."""


def read_system() -> System:
    """The system now."""
    try:
        lines = (probes.PROC / "meminfo").read_text().splitlines()
    except OSError:
        return System(_available(), Unknown("this system does not tell"))
    fields = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}
    missing = Unknown("the kernel does not tell")
    return System(fields.get("MemAvailable", missing), fields.get("AnonPages", missing))


def _available() -> Bytes:
    try:
        import psutil  # noqa: PLC0415
    except ImportError:
        return Unknown("psutil is not installed")
    return int(psutil.virtual_memory().available)
