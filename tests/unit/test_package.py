"""What the package promises as a whole: its public names, the direction of its imports, and how light it is."""

import ast
import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import onnxmem

PACKAGE = Path(onnxmem.__file__).parent

# Each room may import from those before it, and from itself; late imports count like any other.
LAYERS = [
    {"errors", "unknown", "_native"},
    {"units", "commands", "deadline", "user_cache", "locked_folder", "files"},
    {"folders", "documents", "progress", "shown", "toml_tables"},
    {"process"},
    {"environment"},
    {"result"},
    {"model"},
    {"zoo", "scratch"},
    {"placement"},
    {"schedule"},
    {"rewriting"},
    {"session"},
    {"measurement"},
    {"prediction"},
    {"estimation"},
    {"torch", "packing", "history"},
    {"releasing", "comparison", "sharing", "checking", "explaining"},
    {"fitting", "sweeping"},
    {"report"},
    {"app"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}


def _imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("onnxmem"):
            names = [node.module] if node.module != "onnxmem" else [f"onnxmem.{alias.name}" for alias in node.names]
            found |= {name.split(".")[1] for name in names if "." in name}
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("onnxmem.")}
    return found


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_one_way(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if room == "__init__":
        return
    for other in _imports(path):
        assert LEVEL[other] < LEVEL[room] or other == room, f"{room} must not import {other}"


def test_the_public_names_are_there_and_sorted() -> None:
    assert list(onnxmem.__all__) == sorted(onnxmem.__all__, key=lambda name: (not name.isupper(), name))
    for name in onnxmem.__all__:
        assert getattr(onnxmem, name) is not None
    assert set(dir(onnxmem)) == {*onnxmem.__all__, "__version__"}
    assert onnxmem.__version__ == version("onnxmem")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = onnxmem.nonsense  # type: ignore[attr-defined]
    names: dict[str, object] = {}
    exec("from onnxmem import *", names)
    assert names.keys() >= set(onnxmem.__all__)


def test_type_checkers_see_what_is_there() -> None:
    """The stub names each thing's home: every one of them exists, once, and is exported under its own name."""
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    exported = [alias.asname for node in imports for alias in node.names]
    assert sorted(map(str, exported)) == sorted(onnxmem.__all__)
    assert all(alias.asname == alias.name for node in imports for alias in node.names)


def test_every_public_function_is_typed_and_explained() -> None:
    for name in onnxmem.__all__:
        thing = getattr(onnxmem, name)
        if inspect.isfunction(thing):
            assert thing.__doc__, f"{name} has no docstring"
            extra = [p for p in inspect.signature(thing).parameters.values() if p.kind is p.VAR_KEYWORD]
            assert all("Unpack[" in str(p.annotation) for p in extra), f"{name} takes anything"


def test_every_native_source_is_built() -> None:
    """One that is left out is missed only when its module is imported."""
    root = Path(__file__).parents[2]
    calls = (root / "CMakeLists.txt").read_text()
    modules = re.findall(r"^native_module\((\w+)[^)]*?(?:PARTS\s+([\w\s]+))?\)", calls, re.MULTILINE)
    built = {f"{name}_{part}" for name, parts in modules for part in parts.split()} | {name for name, _ in modules}
    assert built == {path.stem for path in (root / "src" / "onnxmem" / "_native").glob("*.cpp")}


def test_the_package_that_is_tested_is_the_installed_one() -> None:
    assert "site-packages" in PACKAGE.parts


def test_importing_it_is_light() -> None:
    heavy = "numpy onnx onnxruntime altair torch streamlit rich typer".split()  # noqa: SIM905
    code = f"import sys, onnxmem; print([m for m in {heavy!r} if m in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


def test_help_does_not_load_the_heavy_parts() -> None:
    code = (
        "import sys; sys.argv = ['onnxmem', '--help']\n"
        "from onnxmem.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print([m for m in ('numpy', 'onnx', 'onnxruntime', 'altair') if m in sys.modules], file=sys.stderr)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stderr.strip() == "[]"
