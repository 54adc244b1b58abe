"""Is this the kind of CPU that a package was made on? Packed weights and blocked layouts depend on it."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path

from onnxmem.documents import Record

# What ONNX Runtime's kernels look at when they choose how to lay out weights. Others (crypto, virtualization …) differ
# between machines on which a package works.
_X86 = (
    "sse4_1 ssse3 avx avx2 fma f16c avx512f avx512cd avx512bw avx512dq avx512vl avx512_vnni avx512_bf16 avx512_fp16 "
    "avx_vnni amx_tile amx_int8 amx_bf16"
)
_ARM = "asimd asimdhp asimddp fphp i8mm bf16 svei8mm svebf16 sve sve2 sme sme2"
_LOOKED_AT = frozenset(f"{_X86} {_ARM}".split())


@dataclass(frozen=True)
class Cpu(Record):
    """A kind of CPU: its architecture, and the instructions that kernels choose by."""

    machine: str
    features: tuple[str, ...]

    def difference(self, other: Cpu) -> str:
        """How another CPU differs from this one, in words; empty if it does not."""
        if self.machine != other.machine:
            return f"it is {other.machine}, not {self.machine}"
        lacks, has = set(self.features) - set(other.features), set(other.features) - set(self.features)
        parts = [f"it {verb} {', '.join(sorted(names))}" for verb, names in (("lacks", lacks), ("has", has)) if names]
        return " and ".join(parts)


def this_cpu(cpuinfo: Path = Path("/proc/cpuinfo")) -> Cpu:
    """The CPU of this machine. Where the system does not list its features, none are known and none are compared."""
    try:
        lines = cpuinfo.read_text().splitlines()
    except OSError:
        lines = []
    flags = next((line.partition(":")[2].split() for line in lines if line.lower().startswith(("flags", "feat"))), [])
    return Cpu(platform.machine(), tuple(sorted(_LOOKED_AT.intersection(flags))))
