"""Einsum: pairs of operands, each turned into one product of matrices."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from onnxmem.scratch.kernel import Kernel, Scratch, elements

_Operand = dict[str, int]
"""The sizes of all labels, in order; 1 for those that an operand does not have."""


def einsum(kernel: Kernel) -> Scratch:
    """What is turned, summed and multiplied on the way; the result is copied into the output at the end."""
    shapes = [kernel.input(place) for place in range(len(kernel.node.inputs))]
    terms, result = _terms(kernel.attribute("equation", ""), shapes)
    ellipsis = sorted({label for term in terms for label in term if not label.isascii()})
    labels = list(dict.fromkeys([*ellipsis, *(label for term in terms for label in term)]))
    last = {label: max(n for n, term in enumerate(terms) if label in term) for label in labels}
    ends = [[label for label in labels if last[label] == n and label not in result] for n in range(len(terms))]
    work = _Work(labels, kernel.width(0))
    operands = [work.spread(term, shape) for term, shape in zip(terms, shapes, strict=True)]
    done, order = work.summed(operands[0], ends[0]), labels
    for operand, reduced in zip(operands[1:], ends[1:], strict=True):
        if order != labels and _moved(done, order, labels):
            work.take(done)
        done, order = work.multiplied(done, operand, reduced)
    before = len(work.steps)
    if [label for label in order if label in result] != list(result):
        work.take(done)
    return Scratch(tuple(work.steps), before=before)


class _Work:
    """What has been taken and given back so far."""

    def __init__(self, labels: list[str], width: int) -> None:
        self.labels = labels
        self.width = width
        self.steps: list[int] = []
        self.number = 0
        self.turned: list[int] = []
        """Operands of the last product, which are given back before the next."""

    def take(self, operand: Mapping[str, int]) -> None:
        """A new tensor of this size."""
        if size := self.width * elements(operand.values()):
            self.steps.append(size)
            self.number += 1

    def spread(self, term: str, shape: tuple[int, ...]) -> _Operand:
        """An operand with every label: cut along the diagonal where it has one twice, turned where out of order."""
        own = dict(zip(term, shape, strict=True))
        if len(own) < len(term):
            self.take(own)
        if [label for label in self.labels if label in own] != list(own):
            self.take(own)
        return {label: own.get(label, 1) for label in self.labels}

    def summed(self, operand: _Operand, reduced: Collection[str]) -> _Operand:
        """An operand without these labels."""
        if not reduced:
            return operand
        left = {label: 1 if label in reduced else size for label, size in operand.items()}
        self.take(left)
        return left

    def multiplied(self, one: _Operand, other: _Operand, reduced: Collection[str]) -> tuple[_Operand, list[str]]:
        """Their product, and the order in which its labels lie."""
        kept = [label for label in self.labels if label not in reduced]
        batch = [label for label in kept if one[label] > 1 and other[label] > 1]
        rows = [label for label in kept if one[label] > 1 and other[label] == 1]
        columns = [label for label in kept if label not in batch and label not in rows]
        alone = [label for label in reduced if one[label] > 1 and other[label] == 1]
        alone_there = [label for label in reduced if other[label] > 1 and one[label] == 1]
        one, other = self.summed(one, alone), self.summed(other, alone_there)
        self.steps += [-number for number in self.turned]
        first = self.number + 1
        if [*batch, *rows, *reduced, *columns] != self.labels:
            self.take(one)
        if [*batch, *reduced, *columns, *rows] != self.labels:
            self.take(other)
        self.turned = list(range(first, self.number + 1))
        product = {label: max(one[label], other[label]) if label in kept else 1 for label in self.labels}
        self.take(product)
        return product, [*batch, *rows, *columns, *reduced]


def _moved(operand: Mapping[str, int], order: Collection[str], labels: Collection[str]) -> bool:
    """Whether another order means other places, which it does not for dimensions of 1."""
    wide = {label for label, size in operand.items() if size > 1}
    return [label for label in order if label in wide] != [label for label in labels if label in wide]


def _terms(equation: str, shapes: list[tuple[int, ...]]) -> tuple[list[str], str]:
    """The labels of each operand and of the result; an ellipsis becomes labels that no equation can have."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    written = left.split(",")
    hidden = [len(shape) - len(term.replace("...", "")) for term, shape in zip(written, shapes, strict=True)]
    rank = max((size for size, term in zip(hidden, written, strict=True) if "..." in term), default=0)
    names = "".join(chr(0xE000 + place) for place in range(rank))
    terms = [term.replace("...", names[rank - size :]) for term, size in zip(written, hidden, strict=True)]
    if not arrow:
        letters = left.replace(",", "").replace(".", "")
        right = "..." + "".join(sorted(label for label in set(letters) if letters.count(label) == 1))
    return terms, right.replace("...", names)
