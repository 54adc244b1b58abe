"""`onnxmem app`: the dashboard."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from onnxmem.cli.console import tell
from onnxmem.errors import UsageError
from onnxmem.units import parse_bytes

_MODELS = (".onnx", ".ort")


def app(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[MODEL|FOLDER|RESULT.json…]",
            help="Models, packages, folders of them, and results to show.",
            show_default=False,
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=65535, help="Where to listen.", show_default="the first free from 8501"),
    ] = None,
    address: Annotated[
        str, typer.Option(metavar="HOST", help="Listen here; whoever has the address it prints may look.")
    ] = "localhost",
    browser: Annotated[bool, typer.Option(help="Open it in a browser.")] = True,
    history: Annotated[
        Path | None, typer.Option(metavar="FILE.sqlite", help="Show this history, too: what check --history writes.")
    ] = None,
    upload_limit: Annotated[str, typer.Option(metavar="SIZE", help="No uploaded file may be larger.")] = "128MiB",
) -> None:
    """Show models, results and what-ifs in a dashboard.

    Everything the other verbs do, with sliders and pictures, in a page that only you see.
    """
    import webbrowser  # noqa: PLC0415

    from onnxmem.app.serve import serve  # noqa: PLC0415
    from onnxmem.app.settings import Settings  # noqa: PLC0415

    models, results = _sort(paths or [])
    if history is not None and not history.is_file():
        raise UsageError(f"cannot read '{history}': there is no such file")
    settings = Settings(
        models=tuple(models), results=tuple(results), history=history, upload_limit=parse_bytes(upload_limit)
    )

    def ready(url: str, once: str) -> None:
        tell(f"the dashboard is at {url}", "Ctrl-C ends it")
        if browser:
            webbrowser.open(once)  # others on this machine see what it is started with

    serve(settings, port=port, address=address, on_ready=ready)


def _sort(paths: list[Path]) -> tuple[list[Path], list[Path]]:
    """Models and packages, and results, among what was given and in the folders among it."""
    from onnxmem.session.package import MANIFEST  # noqa: PLC0415

    models: list[Path] = []
    results: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UsageError(f"cannot read '{path}': there is no such file or folder")
        inside = sorted(path.iterdir()) if path.is_dir() and not (path / MANIFEST).exists() else [path]
        for each in inside:
            if each.suffix.lower() in _MODELS or (each / MANIFEST).exists():
                models.append(each)
            elif each.suffix.lower() == ".json" and each.is_file():
                results.append(each)
            elif each is path:
                raise UsageError(f"'{path}' is neither a model, a package, a folder nor a result",
                                 hint="models end in .onnx or .ort, results in .json")  # fmt: skip
    if paths and not models and not results:
        raise UsageError(f"there is no model and no result in {', '.join(map(str, paths))}")
    return models, results
