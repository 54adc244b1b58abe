"""What a system does to programs: kills, full and read-only disks, no memory, files that change, children that stop.

    python -m campaigns.faults                        all parts
    python -m campaigns.faults kills --times 1000
    python -m campaigns.faults --planted              with a defect in each part, which must be found

After each fault there is the old file or the new one, an answer that is right or one clear sentence, no process that
nobody waits for, and nothing on the disk that the next call does not clear away.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from campaigns.processes import adopt_orphans, load_everything


class Part(NamedTuple):
    """One kind of faults: how many there were, and what should not have come of them."""

    faults: int
    findings: list[str]


def _kills(times: int, only: str, planted: bool) -> Part:
    from campaigns import kills  # noqa: PLC0415  each part loads what it needs

    faults, findings = 0, []
    verbs = {name: verb for name, verb in kills.VERBS.items() if only in name}
    for name, verb in verbs.items():
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary)
            kills.prepare(folder)
            share = max(1, round(times * verb.share / sum(each.share for each in verbs.values())))
            found = kills.kill(name, folder, share, spoil=kills.cut_short if planted else None)
        faults += found.kills
        findings += found.findings
        old, new = found.outcomes["old"], found.outcomes["new"]
        print(f"  {name}: {found.kills} kills, {old} times the old one was there, {new} times the new one", flush=True)
    return Part(faults, findings)


def _disks(times: int, only: str, planted: bool) -> Part:
    from campaigns import disks, kills  # noqa: PLC0415

    faults, findings = 0, list[str]()
    for name in (name for name in kills.VERBS if only in name):
        with tempfile.TemporaryDirectory() as temporary:
            kills.prepare(Path(temporary))
            one = disks.fill(name, Path(temporary), times, spoil=kills.cut_short if planted else None)
        print(f"  {name}: {one[0]} times no room, {one[1]} times refused", flush=True)
        faults, findings = faults + one[0], findings + one[2]
    return Part(faults, findings)


def _memory(times: int, _only: str, planted: bool) -> Part:
    from campaigns import no_memory  # noqa: PLC0415

    return Part(*no_memory.run(times, planted))


def _interference(_times: int, only: str, planted: bool) -> Part:
    from campaigns import interference, kills  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as temporary:
        kills.prepare(Path(temporary))
        return Part(*interference.run(Path(temporary), only, planted))


PARTS: Mapping[str, Callable[[int, str, bool], Part]] = {
    "kills": _kills, "disks": _disks, "memory": _memory, "interference": _interference,
}  # fmt: skip
_TIMES = {"kills": 1000, "disks": 24, "memory": 0, "interference": 0}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.faults", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--times", type=int, help="how many kills, full disks for each verb, or failing calls (0: all)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only verbs and cases whose name has this in it")
    parser.add_argument("--planted", action="store_true", help="with a defect in each part, which must be found")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.parts if name not in PARTS]:
        parser.error(f"there is no part '{unknown[0]}'")
    adopt_orphans()
    if set(chosen.parts or PARTS) - {"memory"}:
        load_everything()
    right = True
    for name in chosen.parts or PARTS:
        started = time.monotonic()
        part = PARTS[name](chosen.times or _TIMES[name], chosen.only, chosen.planted)
        found = "nothing found" if not part.findings else "\n  ".join(["", *part.findings])
        print(f"{name}: {part.faults:,} faults in {time.monotonic() - started:.0f} s: {found}", flush=True)
        right = right and bool(part.findings) == chosen.planted
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
