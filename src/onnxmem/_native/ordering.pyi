from collections.abc import Sequence

class Graph: ...

# A wide integer is its high and its low 64 bits.

def make_graph(
    before: Sequence[Sequence[int]],
    readers: Sequence[Sequence[int]],
    sizes: Sequence[int],
    writers: Sequence[int],
    stays: Sequence[bool],
    takeable: Sequence[bool],
    pairs: Sequence[Sequence[int]],
    glued: Sequence[bool],
    scratch: Sequence[int],
) -> Graph: ...
def settle(graph: Graph, order: Sequence[int]) -> list[int]: ...
def peak(graph: Graph, order: Sequence[int]) -> tuple[int, int]: ...
def node_bound(graph: Graph) -> tuple[int, int]: ...
def within(
    graph: Graph, cap: tuple[int, int], width: int, seed: int, backward: bool
) -> tuple[list[int], str, tuple[int, int]]: ...
def search(
    graph: Graph, starts: Sequence[Sequence[int]], seconds: float, seed: int, work: int = ...
) -> tuple[list[int], tuple[int, int], tuple[int, int], bool]:
    """The order, its peak and the bound, and whether Ctrl-C was pressed."""
