"""Everything that is read, as strangers might have written it: no crash, hang, traceback or memory above 2 GiB.

    python -m campaigns.files                        a hundred thousand inputs for each reader
    python -m campaigns.files onnx --inputs 2000 --first 700
    python -m campaigns.files --planted              with a reader that is wrong on purpose: it must be found

An input is a good file with a few things changed, or with changed bytes. It may be read, or refused with a sentence;
anything else is a finding, with the number that makes it again. Nothing may be written beside it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from campaigns import databases, documents, models, packages, torch_files
from campaigns.hunt import Target, hunt, work
from onnxmem.errors import OnnxmemError

INPUTS = 100_000
TARGETS: Mapping[str, Target] = {
    **models.TARGETS, **documents.TARGETS, **databases.TARGETS, **packages.TARGETS, **torch_files.TARGETS,
}  # fmt: skip


def _planted(path: Path) -> None:
    """A reader that is wrong: it believes what a file says about its own length."""
    content = path.read_bytes()
    if content[:2] != b"id":
        raise OnnxmemError("not a table")
    content.split(b",")[4 + content[-2] % 8]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.files", description=__doc__.splitlines()[0])
    parser.add_argument("targets", nargs="*", metavar="READER", help=f"some of: {', '.join(TARGETS)}")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="how many for each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--planted", action="store_true", help="read with a reader that is wrong on purpose")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    targets = {**TARGETS, "planted": Target(TARGETS["problem"].make, _planted)}
    names = ["planted"] if chosen.planted else chosen.targets or list(TARGETS)
    if unknown := [name for name in names if name not in targets]:
        parser.error(f"there is no reader '{unknown[0]}'")
    if chosen.work:
        work(targets[names[0]], *chosen.work)
        return 0
    found = 0
    for name in names:
        started = time.monotonic()
        command = [sys.executable, "-m", "campaigns.files", name, *(["--planted"] * chosen.planted), "--work"]
        outcomes, findings = hunt(command, chosen.inputs, chosen.first)
        seconds = time.monotonic() - started
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.items()))
        print(f"{name}: {chosen.inputs:,} inputs in {seconds:.0f} s: {counts}", flush=True)
        shown: dict[str, int] = {}
        for finding in findings:
            shown.setdefault(finding.what, finding.number)
        for what, number in shown.items():
            print(f"  input {number}: {what}")
        found += len(findings)
    return 0 if (found > 0) == chosen.planted else 1


if __name__ == "__main__":
    sys.exit(main())
