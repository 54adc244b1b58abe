"""A dimension as plain data for JSON, and back: a number, or the terms of its polynomial, whatever its names are."""

from __future__ import annotations

from typing import Any

from onnxmem.model.dims import Atom, Dim, Expr, FloorDiv, Max, Symbol


def dim_document(dim: Dim) -> Any:
    """A dimension as plain data."""
    if isinstance(dim, int):
        return dim
    return [[coefficient, [[_atom_document(atom), power] for atom, power in term]] for term, coefficient in dim.terms]


def dim_from(document: Any) -> Dim:
    """The dimension that `dim_document` wrote; ValueError if this is none."""
    try:
        if isinstance(document, int):
            return document
        return Expr(
            tuple(
                (tuple((_atom_from(atom), int(power)) for atom, power in term), int(coefficient))
                for coefficient, term in document
            )
        )
    except (TypeError, KeyError) as error:
        raise ValueError(f"{document!r} is not a dimension") from error


def _atom_document(atom: Atom) -> Any:
    if isinstance(atom, Symbol):
        return atom.name
    if isinstance(atom, FloorDiv):
        return {"floor": [dim_document(atom.dividend), dim_document(atom.divisor)]}
    return {"max": [dim_document(item) for item in atom.items]}


def _atom_from(document: Any) -> Atom:
    if isinstance(document, str):
        return Symbol(document)
    if "max" in document:
        return Max(tuple(dim_from(item) for item in document["max"]))
    dividend, divisor = (dim_from(part) for part in document["floor"])
    if isinstance(dividend, int):
        raise TypeError("the dividend of a floor is a number")
    return FloorDiv(dividend, divisor)
