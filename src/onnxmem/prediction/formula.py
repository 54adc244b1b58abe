"""The peak of a mode as a formula of the model's own dimensions, where it is one.

Loading takes what it takes, and the inputs come on top. What runs take is the most that is alive after any of their
calls, and after each call that is a polynomial of the dimensions: a planned session's peak is the largest of a few of
them. An arena puts memory where it finds room, in regions that grow by powers of two; whether its peak is a polynomial
has to be seen. So every candidate is made from as many forecasts as it has terms, and then asked for sizes that it was
not made from. What comes out as it is forecast there is a formula; everything else is none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import numpy as np
import numpy.typing as npt

from onnxmem.deadline import Deadline
from onnxmem.model.comparing import evaluate, substitute
from onnxmem.model.dims import Dim, Monomial, Symbol, product, symbol, terms_of, total
from onnxmem.model.graph import Graph, Tensor
from onnxmem.prediction.calibration import Calibration
from onnxmem.prediction.predict import Subject, forecast_mode
from onnxmem.prediction.prediction import ModeFormula, Term
from onnxmem.prediction.requests import Requests
from onnxmem.schedule.formula import Formula, in_original
from onnxmem.unknown import Unknown

CLOSE = 0.005
"""A formula may be off by this part of a forecast, …"""
_A_FEW_PAGES = 64 << 10
"""… or by so much: memory comes in pages."""
_MOST_TERMS = 8
_CHECKED = 4
_FACTOR = 4
"""How far from the smallest size to the largest that is looked at, …"""
_LARGEST_BATCH = 16
"""… and for a dimension that begins at one."""
_GOLDEN = 0.6180339887498949
_IN_AN_ARENA = "where buffers lie in ONNX Runtime's arena, which grows by powers of two, changes with the size"
_NONE = {"planned": "what kernels take beside their tensors grows in steps"}

Powers = tuple[tuple[str, int], ...]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Where forecasts are made: first those that formulas are made from, then those they are checked at."""

    basis: tuple[Powers, ...]
    """What may be multiplied: the products of dimensions that tensors' sizes are made of."""
    multiples: Mapping[str, int]
    range: Mapping[str, tuple[int, int]]
    made_from: tuple[Mapping[str, int], ...]
    checked: tuple[Mapping[str, int], ...]

    def row(self, dims: Mapping[str, int]) -> list[int]:
        """The products at these sizes, in steps of the multiples."""
        return [
            prod((dims[name] // self.multiples.get(name, 1)) ** power for name, power in each) for each in self.basis
        ]


def find_formulas(
    subject: Subject,
    general: Graph,
    formula: Formula,
    modes: Sequence[str],
    environment: Calibration,
    deadline: Deadline,
) -> dict[str, ModeFormula | Unknown]:
    """The formula of each mode; `general` is the graph with its dimensions left open, `formula` that of its tensors."""
    try:
        sizes = _sizes(general, formula, subject.assumed)
        at = _Subjects(subject, general)
    except _NoFormula as error:
        return dict.fromkeys(modes, Unknown(str(error)))
    found: dict[str, ModeFormula | Unknown] = {}
    for mode in modes:
        try:
            found[mode] = _find(sizes, partial(_candidates, at, mode, environment), deadline)
        except _NoFormula as error:
            found[mode] = Unknown(str(error) or _NONE.get(mode, _IN_AN_ARENA))
    return found


class _NoFormula(Exception):
    """Why there is none."""


@dataclass
class _Subjects:
    """The model at sizes, each made once."""

    subject: Subject
    general: Graph

    def __post_init__(self) -> None:
        known = {tensor.name for tensor in self.subject.graph.all_tensors() if not isinstance(tensor.size, Unknown)}
        if any(isinstance(tensor.size, Unknown) and tensor.name in known for tensor in self.general.all_tensors()):
            raise _NoFormula("some tensors' sizes are known only for given numbers")
        self._made: dict[tuple[tuple[str, int], ...], Subject] = {}

    def __call__(self, dims: Mapping[str, int]) -> Subject:
        key = tuple(dims.items())
        if key not in self._made:
            self._made[key] = self.subject.at(_numbered(self.general, dims), dims)
        return self._made[key]


def _numbered(graph: Graph, dims: Mapping[str, int]) -> Graph:
    """The graph with these numbers for its dimensions."""

    def tensor(old: Tensor) -> Tensor:
        size = old.size if isinstance(old.size, Unknown) else _number(old.size, dims)
        return replace(old, shape=old.shape and tuple(_number(dim, dims) for dim in old.shape), size=size)

    nodes = tuple(
        replace(node, subgraphs=tuple(_numbered(inner, dims) for inner in node.subgraphs)) if node.subgraphs else node
        for node in graph.nodes
    )
    return replace(graph, nodes=nodes, tensors={name: tensor(old) for name, old in graph.tensors.items()})


def _number(dim: Dim, dims: Mapping[str, int]) -> int:
    try:
        return evaluate(dim, dims)
    except KeyError as error:
        raise _NoFormula("some tensors' sizes depend on more than the model's dimensions") from error


def _sizes(general: Graph, formula: Formula, assumed: Mapping[str, int]) -> Sizes:
    multiples = formula.multiples
    steps: dict[str, Dim] = {name: symbol(name) * multiple for name, multiple in multiples.items()}
    inputs = [general.tensors[name].size for name in general.inputs if name in general.tensors]
    basis: set[Powers] = {()}
    for dim in (*formula.general, *(size for size in inputs if not isinstance(size, Unknown))):
        # What cannot be divided evenly is rounded, which a formula's tolerance may or may not allow for.
        basis |= {
            powers for monomial, _ in terms_of(substitute(dim, steps)) if (powers := _powers(monomial)) is not None
        }
    if len(basis) > _MOST_TERMS:
        raise _NoFormula(f"it would have {len(basis)} terms")
    used = sorted({name for powers in basis for name, _ in powers})
    spans = {}
    for name in used:
        multiple = multiples.get(name, 1)
        low = -(-assumed[name] // multiple)
        spans[name] = low, max(low * _FACTOR, _LARGEST_BATCH if assumed[name] == 1 else low + len(basis))
    points = list(_points(spans, len(basis) + 1 + _CHECKED))
    scaled = [{**assumed, **{name: n * multiples.get(name, 1) for name, n in point.items()}} for point in points]
    return Sizes(
        basis=tuple(sorted(basis)),
        multiples={name: multiples.get(name, 1) for name in used},
        range={
            name: (low * multiples.get(name, 1), high * multiples.get(name, 1)) for name, (low, high) in spans.items()
        },
        made_from=tuple(scaled[: len(basis) + 1]),
        checked=tuple(scaled[len(basis) + 1 :]),
    )


def _powers(monomial: Monomial) -> Powers | None:
    pairs = [(atom.name, power) for atom, power in monomial if isinstance(atom, Symbol)]
    return tuple(pairs) if len(pairs) == len(monomial) else None


def _points(spans: Mapping[str, tuple[int, int]], count: int) -> Iterator[dict[str, int]]:
    """So many different places, spread evenly, both ends among them: the same every time."""
    seen = set()
    for k in range(count * 8):
        parts = [(k * _GOLDEN ** (place + 1) * (place + 1)) % 1 for place in range(len(spans))]
        if k < 2:
            parts = [float(k)] * len(spans)
        point = {
            name: low + round(part * (high - low))
            for part, (name, (low, high)) in zip(parts, spans.items(), strict=True)
        }
        if tuple(point.values()) not in seen:
            seen.add(tuple(point.values()))
            yield point
            if len(seen) == count:
                return
    raise _NoFormula("there are too few sizes to make one from")


def _candidates(at: _Subjects, mode: str, environment: Calibration, dims: Mapping[str, int]) -> Numbers:
    """Numbers of which the largest is the peak: what loading takes, and then what runs may take."""
    subject = at(dims)
    forecast = forecast_mode(subject, mode, environment)
    if mode != "planned":
        return np.array([forecast.load_peak, forecast.steady], float)
    run = subject.plain_runs.first
    # What is alive after each call, as it is recorded, and as it will lie in the plan with small outputs beside it.
    alive = np.concatenate([_alive(run), _alive(run, "output") + run.beside_bytes])
    return np.concatenate([[forecast.load_peak], alive + (forecast.steady - alive.max(initial=0))])


def _alive(run: Requests, *but: str) -> Numbers:
    signed = [0 if e.buffer.kind in but else -e.buffer.size if e.freed else e.buffer.size for e in run]
    return np.cumsum(signed, dtype=float)


def _find(sizes: Sizes, candidates_at: Callable[[Mapping[str, int]], Numbers], deadline: Deadline) -> ModeFormula:
    def at(dims: Mapping[str, int]) -> Numbers:
        if deadline.passed:
            raise _NoFormula("it was not found in time")
        return candidates_at(dims)

    values = [at(dims) for dims in sizes.made_from]
    if len({len(each) for each in values}) > 1:
        raise _NoFormula("what runs ask for is not the same at every size")
    rows = np.array([sizes.row(dims) for dims in sizes.made_from], float)
    chosen = sorted({int(each.argmax()) for each in values})
    scale = rows.max(axis=0)
    fitted, _, rank, _ = np.linalg.lstsq(rows / scale, np.array(values)[:, chosen], rcond=None)
    if rank < len(sizes.basis):
        raise _NoFormula("there are too few sizes to make one from")
    sums = [_sum(sizes.basis, column / scale) for column in fitted.T]
    worst = 0.0
    for dims in (*sizes.made_from, *sizes.checked):
        known = values[sizes.made_from.index(dims)] if dims in sizes.made_from else at(dims)
        steps = {name: dims[name] // multiple for name, multiple in sizes.multiples.items()}
        found, peak = max(evaluate(each, steps) for each in sums), float(known.max())
        if abs(found - peak) > max(CLOSE * peak, _A_FEW_PAGES):
            raise _NoFormula
        worst = max(worst, abs(found - peak) / peak)
    return _formula(sizes, sums, worst)


def _sum(basis: Sequence[Powers], factors: Numbers) -> Dim:
    """Sizes are whole bytes, and so are the factors of whole steps."""
    products = (product(symbol(name) for name, power in each for _ in range(power)) for each in basis)
    return total(one * round(factor) for one, factor in zip(products, factors, strict=True))


def _formula(sizes: Sizes, sums: Sequence[Dim], worst: float) -> ModeFormula:
    unique = list(dict.fromkeys(sums))
    texts = [in_original(each, sizes.multiples) for each in unique]
    return ModeFormula(
        text=texts[0] if len(texts) == 1 else f"max({', '.join(texts)})",
        terms=tuple(tuple(_term(m, c, sizes.multiples) for m, c in terms_of(each)) for each in unique),
        range=sizes.range,
        multiples=sizes.multiples,
        checked=len(sizes.checked),
        error=worst,
    )


def _term(monomial: Monomial, factor: int, multiples: Mapping[str, int]) -> Term:
    powers = dict(_powers(monomial) or ())
    return Term(bytes=factor / prod(multiples[name] ** power for name, power in powers.items()), powers=powers)
