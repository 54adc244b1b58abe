"""Build a native test program with a sanitizer, once for each state of its sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NATIVE = ROOT / "src" / "onnxmem" / "_native"
CACHE = ROOT / ".cache" / "native-tests"

# A data race and a wild pointer need different instruments, which cannot be combined.
SANITIZERS = {
    "address": ("-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
    "thread": ("-fsanitize=thread",),
}
# Line numbers for the reports. Unoptimized, because most of the test is waiting for the compiler; but not the arena,
# whose tests run longer than they compile.
_FLAGS = ("-std=c++20", "-g1", f"-I{NATIVE}")
_OPTIMIZATION = {"arena": "-O1"}


class CannotBuild(Exception):
    """This machine has no compiler, or none with this sanitizer."""


def build(module: str, sanitizer: str) -> Path:
    """The program made of tests/native/<module>_*.cpp and the module's sources, except its Python bindings."""
    compiler = _compiler()
    flags = [*_FLAGS, _OPTIMIZATION.get(module, "-O0"), *SANITIZERS[sanitizer]]
    sources, headers = (
        [path for folder in (HERE, NATIVE) for path in sorted(folder.glob(f"{module}_*.{suffix}"))]
        for suffix in ("cpp", "hpp")
    )
    content = hashlib.sha256(repr((compiler, flags)).encode())
    for path in (*sources, *headers):
        content.update(path.read_bytes())
    program = CACHE / f"{module}-{sanitizer}-{content.hexdigest()[:16]}"
    if program.exists():
        return program
    work = CACHE / f"{program.name}.{os.getpid()}"
    work.mkdir(parents=True)
    try:
        _try_out(compiler, flags, work)
        read_once = _precompiled(compiler, flags, [*sources, *headers], work)
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            objects = list(pool.map(lambda source: _compile(compiler, [*flags, *read_once], source, work), sources))
        # The driver that stands in for CUDA's is looked up in the program itself, so its functions are exported.
        _run([compiler, *flags, *map(str, objects), "-pthread", "-rdynamic", "-ldl", "-o", str(work / "program")])
        # Renamed when complete: two test processes may build at the same time.
        (work / "program").replace(program)
    finally:
        shutil.rmtree(work)
    return program


def build_driver() -> Path:
    """The driver that stands in for CUDA's as a library, for tests that load it as they would load CUDA's."""
    source = HERE / "arena_stand_in.cpp"
    content = hashlib.sha256(source.read_bytes() + source.with_suffix(".hpp").read_bytes())
    library = CACHE / f"driver-{content.hexdigest()[:16]}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        work = CACHE / f"{library.name}.{os.getpid()}"
        _run([_compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", str(source), "-pthread", "-o", str(work)])
        work.replace(library)
    return library


def _compiler() -> str:
    compiler = os.environ.get("CXX") or next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if compiler is None:
        raise CannotBuild("there is no C++ compiler")
    return compiler


def _try_out(compiler: str, flags: list[str], work: Path) -> None:
    source = work / "empty.cpp"
    source.write_text("int main() { return 0; }\n")
    try:
        _run([compiler, *flags, str(source), "-o", str(work / "empty")])
        _run([str(work / "empty")])
    except (subprocess.CalledProcessError, OSError) as error:
        raise CannotBuild(f"{compiler} cannot build or run with {flags[-1]}") from error


def _precompiled(compiler: str, flags: list[str], paths: list[Path], work: Path) -> list[str]:
    """The standard library's headers, which all sources include, are half of the compiler's work: once is enough."""
    header = work / "standard.hpp"
    lines = {line for path in paths for line in path.read_text().splitlines() if line.startswith("#include <")}
    header.write_text("\n".join(sorted(lines)) + "\n")
    _run([compiler, *flags, "-x", "c++-header", str(header), "-o", f"{header}.gch"])
    return ["-include", str(header)]


def _compile(compiler: str, flags: list[str], source: Path, work: Path) -> Path:
    target = work / f"{source.stem}.o"
    _run([compiler, *flags, "-c", str(source), "-o", str(target)])
    return target


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.stdout.write(f"{build(*sys.argv[1:3])}\n")
