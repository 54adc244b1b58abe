"""Everything that is read, as strangers might have written it: no crash, hang, traceback or memory above 2 GiB.

    python -m campaigns.files                        a hundred thousand inputs for each reader
    python -m campaigns.files onnx --inputs 2000 --first 700
    python -m campaigns.files --planted              with a reader that is wrong on purpose: it must be found

An input is a good file with a few things changed, or with changed bytes. It may be read, or refused with a sentence;
anything else is a finding, with the number that makes it again. Nothing may be written beside it.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import tempfile
import time
from collections.abc import Mapping

from campaigns.corpus import KEPT
from campaigns.hunt import Finding, Target, hunt, work

INPUTS = 100_000
_MOST_SHOWN = 20
_ROOMS = {
    "models": ("onnx", "graph", "ort", "feeds", "upload"),
    "documents": ("problem", "plan", "result", "page", "baseline", "explain", "settings", "spec"),
    "databases": ("history", "store"),
    "packages": ("package", "plans", "kept"),
    "torch_files": ("weights",),
}
PLANTED = ("problem", "graph", "upload", "history", "package", "kept", "weights")
"""The readers of which there is one that is wrong on purpose."""
READERS = {reader: f"campaigns.{room}" for room, readers in _ROOMS.items() for reader in readers}
"""Each reader, and the module that has it: only that is imported, by the workers."""


def target_of(reader: str, *, planted: bool = False) -> Target:
    """What is read, and how; or how not."""
    room = importlib.import_module(READERS[reader])
    targets: Mapping[str, Target] = room.TARGETS
    return targets[reader]._replace(read=room.PLANTED[reader]) if planted else targets[reader]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.files", description=__doc__.splitlines()[0])
    parser.add_argument("readers", nargs="*", metavar="READER", help=f"some of: {', '.join(READERS)}")
    parser.add_argument("--inputs", type=int, default=INPUTS, help="how many for each")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--planted", action="store_true", help="read with readers that are wrong on purpose")
    parser.add_argument("--work", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    known = PLANTED if chosen.planted else tuple(READERS)
    names = chosen.readers or [name for name in known if name != "weights" or importlib.util.find_spec("torch")]
    if unknown := [name for name in names if name not in known]:
        parser.error(f"there is no reader '{unknown[0]}'; there are: {', '.join(known)}")
    if chosen.work:
        work(target_of(names[0], planted=chosen.planted), *chosen.work)
        return 0
    wrong = 0
    folder = tempfile.TemporaryDirectory()
    os.environ[KEPT] = folder.name
    for name in names:
        started = time.monotonic()
        command = [sys.executable, "-m", "campaigns.files", name, *(["--planted"] * chosen.planted), "--work"]
        outcomes, findings = hunt(command, chosen.inputs, chosen.first)
        seconds = time.monotonic() - started
        counts = ", ".join(f"{count:,} {what}" for what, count in sorted(outcomes.items()))
        print(f"{name}: {chosen.inputs:,} inputs in {seconds:.0f} s: {counts}", flush=True)
        shown: dict[str, Finding] = {}
        for finding in findings:
            shown.setdefault(finding.kind, finding)
        for finding in list(shown.values())[:_MOST_SHOWN]:
            print(f"  input {finding.number}: {finding.what}")
        wrong += bool(findings) != chosen.planted
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
