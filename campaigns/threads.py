"""Stock against planned with so many threads, bit for bit: every network of the zoo, small, in two shapes.

python -m campaigns.threads 1 8 64
"""

from __future__ import annotations

import sys

import onnxruntime

from onnxmem import InferenceSession, zoo
from tests.helpers import TINY, random_feeds

_RUNS = 3


def compare(name: str, threads: int) -> list[str]:
    """What is wrong with a network's planned runs."""
    network, shapes = TINY[name]
    proto = zoo.build(name, **network)
    model, options = proto.SerializeToString(), onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    # Threads that wait by spinning would take the few processors there are from those that have work.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    stock = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    planned = InferenceSession(model, options, ["CPUExecutionProvider"], mode="planned")
    wrong = []
    for dims in shapes:
        feeds = random_feeds(proto, dims)
        wanted = [array.tobytes() for array in stock.run(None, feeds)]
        found = [[array.tobytes() for array in planned.run(None, feeds)] for _ in range(_RUNS)]
        if any(each != wanted for each in found):
            wrong.append(f"{name}, {threads} threads, {dims}: other outputs than stock's")
    memory = planned.memory
    runs = _RUNS * len(shapes)
    if memory.runs_deviated or memory.runs_from_heap or memory.runs_recorded + memory.runs_replayed != runs:
        wrong.append(
            f"{name}, {threads} threads: of {runs} runs {memory.runs_recorded} were recorded, {memory.runs_replayed} "
            f"replayed, {memory.runs_deviated} deviated, {memory.runs_from_heap} went to the heap"
        )
    return wrong


def main() -> int:
    counts = [int(word) for word in sys.argv[1:]]
    wrong = [said for threads in counts for name in TINY for said in compare(name, threads)]
    for said in wrong:
        print(said)
    networks = len(TINY) * len(counts)
    print(f"{networks} sessions of {2 * _RUNS} runs: " + (f"{len(wrong)} wrong" if wrong else "the same bit for bit"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
