"""Build native test programs with a sanitizer, once for each state of their sources."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
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
# whose tests run longer than they compile. More than -Og takes more time than it saves.
_FLAGS = ("-std=c++20", "-g1", f"-I{NATIVE}")
_OPTIMIZATION = {"arena": "-Og"}


TARGETS = ("placement", "ordering", "arena")
"""What reads bytes as instances: tests/native/fuzz_<target>.cpp."""

_EMPTY = "int main() { return 0; }\n"
_EMPTY_TARGET = 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }\n'


class CannotBuild(Exception):
    """This machine has no compiler, or none with this sanitizer."""


def build(target: str, sanitizer: str) -> Path:
    """A program that runs a target over kept and random inputs, and the tests beside it, if there are any."""
    tests = _files(HERE, f"{target}_*") or [HERE / "fuzz_main.cpp"]
    files = [*tests, HERE / "fuzz_driver.cpp", HERE / f"fuzz_{target}.cpp", HERE / "fuzz_source.hpp"]
    flags = (_OPTIMIZATION.get(target, "-O0"), *SANITIZERS[sanitizer])
    return _made(f"{target}-{sanitizer}", _compiler(), flags, [*files, *_files(NATIVE, f"{target}_*")])


def build_fuzzer(target: str, sanitizer: str) -> Path:
    """The same target in libFuzzer's hands, which looks for inputs that reach code no other has reached."""
    names = ("clang++", *(f"clang++-{version}" for version in range(30, 11, -1)))
    compiler = next((name for name in names if shutil.which(name)), None)
    if compiler is None:
        raise CannotBuild("this needs clang with libFuzzer: on Debian and Ubuntu, apt-get install clang")
    kind, *others = SANITIZERS[sanitizer]
    # CUDA's functions are called by types of our own, where a structure has another name. Following comparisons takes
    # a third of the time: bytes are decisions here, and there is no number to be guessed.
    flags = (
        "-O2", kind.replace("=", "=fuzzer,"), "-fno-sanitize=function", "-fno-sanitize-coverage=trace-cmp", *others,
    )  # fmt: skip
    helpers = [path for path in _files(HERE, f"{target}_*") if path.suffix == ".hpp" or path.stem == "arena_stand_in"]
    files = [HERE / f"fuzz_{target}.cpp", HERE / "fuzz_source.hpp", *helpers, *_files(NATIVE, f"{target}_*")]
    return _made(f"fuzzer-{target}-{sanitizer}", compiler, flags, files, _EMPTY_TARGET)


def _files(folder: Path, pattern: str) -> list[Path]:
    return [path for suffix in ("cpp", "hpp") for path in sorted(folder.glob(f"{pattern}.{suffix}"))]


def _made(name: str, compiler: str, options: Sequence[str], files: Sequence[Path], empty: str = _EMPTY) -> Path:
    flags = [*_FLAGS, *options]
    content = hashlib.sha256(repr((compiler, flags)).encode())
    for path in files:
        content.update(path.read_bytes())
    program = CACHE / f"{name}-{content.hexdigest()[:16]}"
    if program.exists():
        return program
    work = CACHE / f"{program.name}.{os.getpid()}"
    work.mkdir(parents=True)
    try:
        _try_out(compiler, flags, work, empty)
        # All sources as one: the compiler reads the standard library, and makes what they use of it, once.
        whole = work / "whole.cpp"
        whole.write_text("".join(f'#include "{path}"\n' for path in files if path.suffix == ".cpp"))
        # The driver that stands in for CUDA's is looked up in the program itself, so its functions are exported.
        _run([compiler, *flags, str(whole), "-pthread", "-rdynamic", "-ldl", "-o", str(work / "program")])
        # Renamed when complete: two test processes may build at the same time.
        (work / "program").replace(program)
    finally:
        shutil.rmtree(work)
    return program


def build_library(name: str) -> Path:
    """A source of its own as a library that can be loaded."""
    source = HERE / f"{name}.cpp"
    content = hashlib.sha256()
    for path in (source, *source.parent.glob(f"{name}.hpp")):
        content.update(path.read_bytes())
    library = CACHE / f"{name}-{content.hexdigest()[:16]}.so"
    if not library.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        work = CACHE / f"{library.name}.{os.getpid()}"
        _run([_compiler(), "-std=c++20", "-O1", "-fPIC", "-shared", str(source), "-pthread", "-ldl", "-o", str(work)])
        work.replace(library)
    return library


def build_driver() -> Path:
    """The driver that stands in for CUDA's, for tests that load it as they would load CUDA's."""
    return build_library("arena_stand_in")


def _compiler() -> str:
    compiler = os.environ.get("CXX") or next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if compiler is None:
        raise CannotBuild("there is no C++ compiler")
    return compiler


def _try_out(compiler: str, flags: list[str], work: Path, empty: str) -> None:
    source = work / "empty.cpp"
    source.write_text(empty)
    try:
        _run([compiler, *flags, str(source), "-o", str(work / "empty")])
        _run([str(work / "empty"), *(["-runs=1"] if empty is _EMPTY_TARGET else [])])
    except (subprocess.CalledProcessError, OSError) as error:
        raise CannotBuild(f"{compiler} cannot build or run with {flags[-1]}") from error


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)


if __name__ == "__main__":
    sys.stdout.write(f"{build(*sys.argv[1:3])}\n")
