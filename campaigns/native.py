"""The searches and the allocator of `_native/` in the hands of libFuzzer, under the compiler's sanitizers.

    python -m campaigns.native                          ten million executions, over all targets
    python -m campaigns.native arena --executions 100000 --sanitizer thread
    python -m campaigns.native --planted                with answers that are made wrong on purpose: they must be found
    python -m campaigns.native --keep                   and keep the smallest inputs that reach what can be reached

A target reads bytes as an instance, has it solved, and checks the answer in another way: tests/native/fuzz_*.cpp. What
an input must not do: fail a check, touch memory that is not its own, race, overflow, or take a minute or 2 GiB.
It begins with the inputs in tests/native/corpus, a line each, and goes on with those that earlier campaigns found.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.native.build import CACHE, HERE, TARGETS, CannotBuild, build_fuzzer

EXECUTIONS = 10_000_000
_SHARES = {
    ("arena", "address"): 0.3, ("ordering", "address"): 0.3, ("placement", "address"): 0.3,
    ("arena", "thread"): 0.05, ("placement", "thread"): 0.05,
}  # fmt: skip
"""A data race costs more to look for, and the order search has no threads."""

_LENGTHS = ((16, 0.6), (32, 0.3), (120, 0.09), (400, 0.01))
"""The longest inputs in bytes, and how many of the executions: small instances are as good, and faster."""

_KEPT = 60
_PLANTED_EXECUTIONS = 200_000
_OPTIONS = ("-timeout=60", "-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0", "-print_funcs=0", "-reload=0")
_SANITIZED = "allocator_may_return_null=1:detect_leaks=0:malloc_context_size=2:quarantine_size_mb=16"


def _unpacked(target: str, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, line in enumerate((HERE / "corpus" / f"{target}.txt").read_text().split()):
        (folder / f"kept-{number}").write_bytes(bytes.fromhex(line))
    return folder


def _environment(planted: bool) -> dict[str, str]:
    settings = {"ASAN_OPTIONS": _SANITIZED, "TSAN_OPTIONS": f"{_SANITIZED}:suppressions={HERE / 'fuzzer.supp'}"}
    return os.environ | settings | ({"ONNXMEM_PLANTED": "1"} if planted else {})


def _fuzz(program: Path, corpus: Path, executions: int, longest: int, planted: bool) -> tuple[int, str | None]:
    """How many were executed, and what was found."""
    with tempfile.TemporaryDirectory() as found:
        limits = (f"-runs={executions}", f"-max_len={longest}", f"-artifact_prefix={found}/")
        command: list[str | Path] = [program, corpus, *limits, *_OPTIONS]
        environment = _environment(planted)
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
        executed = re.search(r"stat::number_of_executed_units: +(\d+)", done.stderr)
        count = int(executed[1]) if executed else 0
        if done.returncode == 0:
            return count, None
        inputs = [path.read_bytes().hex() for path in Path(found).iterdir()]
    said = [
        line for line in done.stderr.splitlines() if re.search(r"ERROR|SUMMARY|runtime error|hpp:\d+|cpp:\d+: ", line)
    ]
    return count, "\n".join([*said[:4], *(f"input: {each}" for each in inputs)])


def _keep(program: Path, target: str, corpus: Path) -> int:
    with tempfile.TemporaryDirectory() as folder:
        command: list[str | Path] = [program, folder, corpus, "-merge=1", "-max_len=120", *_OPTIONS]
        subprocess.run(command, check=True, capture_output=True, env=_environment(False))
        found = sorted((path.read_bytes() for path in Path(folder).iterdir()), key=lambda each: (len(each), each))
    earlier = (HERE / "corpus" / f"{target}.txt").read_text().split()
    some = [each.hex() for each in found[:: max(1, -(-len(found) // _KEPT))]]
    lines = dict.fromkeys([*earlier, *some] if len(earlier) < _KEPT else earlier)
    (HERE / "corpus" / f"{target}.txt").write_text("".join(f"{line}\n" for line in lines if line))
    return len(lines)


def _campaign(target: str, sanitizer: str, executions: int, planted: bool, keep: bool) -> bool:
    """Whether something was found."""
    program = build_fuzzer(target, sanitizer)
    with tempfile.TemporaryDirectory() as temporary:
        corpus = _unpacked(target, Path(temporary) if planted else CACHE / "inputs" / target)
        started, executed, found = time.monotonic(), 0, None
        for longest, share in _LENGTHS:
            count, found = _fuzz(program, corpus, round(share * executions), longest, planted)
            executed += count
            if found:
                break
            seconds = time.monotonic() - started
            print(f"  {executed:,} of {executions:,} in {seconds:.0f} s", file=sys.stderr, flush=True)
        seconds = time.monotonic() - started
        print(
            f"{target}, {sanitizer}: {executed:,} executions in {seconds:.0f} s: {found or 'nothing found'}", flush=True
        )
        if keep and not planted:
            print(f"  {_keep(program, target, corpus)} inputs kept", flush=True)
    return found is not None


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.native", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--executions", type=int, help=f"for each; otherwise {EXECUTIONS:,} over all")
    parser.add_argument("--sanitizer", choices=("address", "thread"))
    parser.add_argument("--planted", action="store_true", help="answers are made wrong on purpose, and must be found")
    parser.add_argument("--keep", action="store_true", help="add inputs to tests/native/corpus")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.targets if name not in TARGETS]:
        parser.error(f"there is no target '{unknown[0]}'")
    found = []
    for (target, sanitizer), share in _SHARES.items():
        if target not in (chosen.targets or TARGETS) or sanitizer != (chosen.sanitizer or sanitizer):
            continue
        if chosen.planted and sanitizer == "thread":
            continue
        executions = chosen.executions or (_PLANTED_EXECUTIONS if chosen.planted else round(share * EXECUTIONS))
        try:
            found.append(_campaign(target, sanitizer, executions, chosen.planted, chosen.keep))
        except CannotBuild as error:
            print(error, file=sys.stderr)
            return 2
    return 0 if (all(found) if chosen.planted else not any(found)) else 1


if __name__ == "__main__":
    sys.exit(main())
