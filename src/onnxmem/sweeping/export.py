"""All cells of a store as a table of a file: CSV for everyone, Parquet for those who have pyarrow."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

from onnxmem import files
from onnxmem.errors import MissingDependency, check_extra
from onnxmem.sweeping.read import COLUMNS, Filter, read_rows

_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
_NUMBERS = {"bytes": "int64", "latency_seconds": "double", "seconds": "double", "tries": "int64"}


def check_export(path: Path) -> None:
    """Raise MissingDependency unless what writes this kind of file is installed; asked before any work."""
    if path.suffix.lower() == ".html":
        check_extra("report")
    if path.suffix.lower() == ".parquet":
        try:
            import pyarrow  # noqa: PLC0415, F401
        except ImportError as error:
            raise MissingDependency(
                "Parquet needs the package 'pyarrow', which is not installed",
                hint="pip install pyarrow, or export a .csv",
            ) from error


def export_rows(store: Path, chosen: Filter, path: Path) -> int:
    """Write them: how many there are. The file is there whole or not at all."""
    with files.replacing(path) as temporary:
        write, rows = _parquet if path.suffix.lower() == ".parquet" else _csv, list(read_rows(store, chosen))
        write(rows, temporary)
    return len(rows)


def _csv(rows: list[dict[str, Any]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows({name: _plain(value) for name, value in row.items()} for row in rows)


def _plain(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula: models may be called anything."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULAS) else value


def _parquet(rows: list[dict[str, Any]], path: Path) -> None:
    import pyarrow  # noqa: PLC0415
    import pyarrow.parquet  # noqa: PLC0415

    schema = pyarrow.schema([(name, _NUMBERS.get(name, "string")) for name in COLUMNS])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), path)
