"""Runs by plans against stock ones, bit for bit: random graphs, packages of them, networks in tiles; and the rules.

    python -m campaigns.plans                         ten thousand graphs, packages, and networks in tiles
    python -m campaigns.plans graphs --count 200 --first 70000
    python -m campaigns.plans --planted               with what is wrong on purpose in each part: it must be found

Graphs have every operator of the tables of what may share a place or be seen as another (`benchmarks.shared_places`),
networks those that are computed in parts (`benchmarks.rewritten`). The rules are put to the installed ONNX Runtime: one
that a kernel does not keep to any more is dropped by every session, and is said here.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import onnxruntime

from benchmarks import rewritten, shared_places
from campaigns import packed
from campaigns.processes import load_everything
from onnxmem.rewriting import stripes
from onnxmem.rewriting.axes import Axes
from onnxmem.rewriting.local import Rows
from onnxmem.rewriting.static import StaticGraph
from onnxmem.rewriting.stripes import Read, Stripe
from onnxmem.session.planned import asking, rules, sharing
from onnxmem.session.planned.pairs import Question

COUNT, _PLANTED_COUNT = 10_000, 100
_UNASKED, _ASKED = "Transpose", "Hardmax"
"""What must not be written over its input, and is allowed to by rules that are planted. The kernel is asked of one."""


def graphs(count: int, first: int) -> bool:
    """Stock against planned; whether nothing was found."""
    counts = shared_places.campaign(count, first)
    print("graphs: " + ", ".join(f"{number:,} {name}" for name, number in counts.items()), flush=True)
    return not counts["different"]


def packages(count: int, first: int) -> bool:
    """Stock against packages, with their plans and orders; each graph in a fork of this process."""
    load_everything()
    shared_places.share_everything()
    counts: Counter[str] = Counter()
    told = time.monotonic()
    for seed in range(first, first + count):
        became, _, why = packed.outcome(seed).partition(": ")
        counts[became] += 1
        if became in (packed.DIFFERENT, packed.FAILED):
            print(f"seed {seed}: {became} as a package {why}", flush=True)
        elif became == packed.REFUSED:
            print(f"  seed {seed}: refused: {why}", file=sys.stderr, flush=True)
        if time.monotonic() > told + 30:
            told = time.monotonic()
            print(f"  {seed + 1 - first:,} of {count:,}: {dict(counts)}", file=sys.stderr, flush=True)
    print("packages: " + ", ".join(f"{number:,} {name}" for name, number in counts.items()), flush=True)
    return not counts[packed.DIFFERENT] + counts[packed.FAILED]


def tiles(count: int, first: int) -> bool:
    """Networks in stripes and blocks against the same undivided."""
    return rewritten.campaign(count, first)


def questions() -> list[Question]:
    """At least one for every operator of which it is promised that its output may lie over an input."""
    found = []
    for op in rules.PROMISED:
        dtype = "bool" if op in ("And", "Or", "Xor", "Not") else "float"
        if op in rules._BY_CHANNEL:
            forms: tuple[str, ...] = ("channels",)
        elif op in rules._BY_ROW:
            forms = ("full", "row", "row") if op == "LayerNormalization" else ("full", "row")
        elif op in rules._BY_ROW_OF_TWO:
            forms = ("full", "full", "row")
        elif op == rules._WITH_BIAS:
            forms = ("full", "row")
        else:
            forms = ("1",) * (3 if op == "Where" else 2 if op in rules._BINARY else 1)
        found.append(Question(op, dtype, forms))
    return found


def ask_all(threads: int = 2) -> dict[str, list[int]]:
    """What the installed kernels answer, by operator; an exception if one cannot be asked."""
    return {put.op: asking.ask(put, threads) for put in questions()}


def probes(_count: int, _first: int) -> bool:
    """Every rule is asked of the kernels; that some say no is no finding: then nothing shares there."""
    answers = ask_all()
    no = [op for op, inputs in answers.items() if not inputs]
    some = ", ".join(op for op, inputs in answers.items() if inputs and inputs != list(rules.PROMISED[op]))
    print(f"rules: {len(answers)} operators asked in ONNX Runtime {onnxruntime.__version__}", end="")
    print(f"; no, say: {', '.join(no) or 'none'}; for only some of their inputs: {some or 'none'}", flush=True)
    return _ASKED not in no


PARTS: Mapping[str, Callable[[int, int], bool]] = {
    "packages": packages, "rules": probes, "graphs": graphs, "tiles": tiles,
}  # fmt: skip
"""In this order: packages are made by forks, and sessions of the others leave threads behind."""


def plant_rules() -> None:
    """Rules that are wrong; sessions believe them without asking the kernels."""
    asked = rules.question
    wrong = rules.Rules()
    wrong.allow = lambda put, positions, threads: True  # type: ignore[method-assign]
    wrong.keep = lambda: None  # type: ignore[method-assign]
    rules.PROMISED.update({_UNASKED: (0,), _ASKED: (0,)})
    sharing.known_rules = lambda: wrong  # type: ignore[attr-defined]
    sharing.question = lambda node: (  # type: ignore[attr-defined]
        Question(node.op, "float", ("1",)) if node.op == _UNASKED else asked(node)
    )


def plant_stripes() -> None:
    """Stripes that take padding for the first row which they should read of their neighbour's."""
    right = stripes._stripe

    def wrong(graph: StaticGraph, axes: Axes, inside: Sequence[int], own: Mapping[str, Rows]) -> Stripe | None:
        stripe = right(graph, axes, inside, own)
        if stripe is None:
            return None
        reads = {
            (place, position): Read(Rows(read.rows.low + 1, read.rows.high), (1, read.pads[1]))
            if graph.nodes[place].op_type in ("Conv", "FusedConv") and read.rows.low and read.rows.size > 1
            else read
            for (place, position), read in stripe.reads.items()
        }
        return stripe._replace(reads=reads)

    stripes._stripe = wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.plans", description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"some of: {', '.join(PARTS)}")
    parser.add_argument("--count", type=int, default=COUNT, help="how many graphs and networks")
    parser.add_argument("--first", type=int, default=0, help="the number of the first one")
    parser.add_argument("--planted", action="store_true", help="with what is wrong on purpose, a hundred of each")
    chosen = parser.parse_args()
    if unknown := [name for name in chosen.parts if name not in PARTS]:
        parser.error(f"there is no part '{unknown[0]}'")
    if chosen.planted:
        plant_rules()
        plant_stripes()
    count = min(chosen.count, _PLANTED_COUNT) if chosen.planted else chosen.count
    right = []
    for name in (part for part in PARTS if part in (chosen.parts or PARTS)):
        started = time.monotonic()
        right.append(PARTS[name](count, chosen.first))
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return int(any(right) if chosen.planted else not all(right))


if __name__ == "__main__":
    sys.exit(main())
