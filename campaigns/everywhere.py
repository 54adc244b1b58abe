"""Does it hold elsewhere: other Pythons, other releases of what it depends on, users, systems, numbers of threads?

    make dist                                               the wheels that are tried
    python -m campaigns.everywhere                          all rows, as a table
    python -m campaigns.everywhere --list
    python -m campaigns.everywhere "python 3.13" threads    rows whose names begin so
    python -m campaigns.everywhere here --planted           with a native module that lacks a symbol: it must be found

Each row installs the wheel from dist/ into a place of its own and runs the same tests there. One that cannot be made
here says why. docs/everywhere.md has the table, and what follows without having been run.
"""

from __future__ import annotations

import argparse
import functools
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from campaigns import places
from campaigns.places import CannotBeHad, Place, Refused
from scripts.dist import DIST, UV

_ENDS = ("alive", "forked", "in_a_thread", "pool_of_forks", "imported_anew")
TESTS = (
    "tests/unit/test_package.py::test_the_package_that_is_tested_is_the_installed_one",
    "tests/unit/test_package.py::test_the_public_names_are_there_and_sorted",
    "tests/unit/test_package.py::test_importing_it_is_light",
    "tests/unit/placement/test_native.py",
    "tests/unit/session/planned/test_arena_native.py",
    "tests/unit/session/planned/test_planned.py",
    "tests/unit/session/planned/test_interrupted.py",
    "tests/unit/session/planned/test_sharing.py::test_an_output_takes_the_place_of_an_input_that_dies",
    "tests/unit/session/planned/test_sharing.py::test_other_shapes_share_what_the_first_one_did",
    "tests/unit/packing/test_blobs.py",
    "tests/unit/measurement/test_limit.py",
    "tests/unit/measurement/test_probes.py",
    "tests/integration/test_cli.py::test_plan_writes_a_plan_and_a_picture",
    "tests/integration/test_cli.py::test_the_command_runs_as_a_program",
    "tests/integration/test_pack.py::test_every_mode_packs_and_computes_the_same[prepacked]",
    *(f"tests/integration/test_process_end.py::test_it_ends_well[{end}]" for end in _ENDS),
)
"""The native modules, planned sessions, packages, how processes end, and the command."""
_EXTRAS = ("report", "solvers")
_OF_EXTRAS = ("tests/unit/report", "tests/unit/placement/test_cp_sat.py")
_OF_THE_APP = ("tests/unit/app",)
_LIMITED = (
    "tests/unit/measurement/test_limit.py",
    "tests/unit/measurement/test_probes.py",
    "tests/integration/test_control_group.py",
    "tests/integration/test_measure.py::test_too_little_memory_is_a_verdict",
    "tests/integration/test_pack.py::test_every_mode_packs_and_computes_the_same[prepacked]",
)
"""What control groups decide, and a package: in an emulated machine everything takes ten times as long."""
_THREADS = (1, 2, 4, 8, 16, 64)
_NIGHTLY = "https://aiinfra.pkgs.visualstudio.com/PublicPackages/_packaging/ORT-Nightly/pypi/simple/"
_FACTS = """
import os, platform
from importlib.metadata import version
named = ("onnxruntime", "onnx", "numpy", "psutil", "typer", "rich")
print("Python", platform.python_version(), *(f", {name} {version(name)}" for name in named),
      ",", *platform.libc_ver(), ", root" if os.geteuid() == 0 else ", not root", sep=" ")
"""


class Row(NamedTuple):
    """A place, and what is run there."""

    about: str
    make: Callable[[Path], Place]
    tests: tuple[str, ...] = TESTS
    module: tuple[str, ...] = ("pytest", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=line")
    installs: bool = True


class Came(NamedTuple):
    """What came of a row: `ok` is None where it was not run."""

    place: str
    said: str
    ok: bool | None


def _with_runtime(minor: str) -> Callable[[Path], Place]:
    return lambda folder: places.environment(folder, "3.12", f"onnxruntime=={minor}.*")


def _nightly(folder: Path) -> Place:
    options = ("--prerelease=allow", "--index", _NIGHTLY, "--index-strategy=unsafe-best-match")
    try:
        return places.environment(folder, "3.12", "onnxruntime>=1.32.dev0", options=options)
    except Refused as error:
        raise CannotBeHad(f"there is no nightly build to be had ({str(error)[:160]})") from None


def _musl(_folder: Path) -> Place:
    """The index is asked what it would install on a system with musl."""
    question = ("pip", "compile", "--python-platform=x86_64-unknown-linux-musl", "--only-binary=:all:", "-")
    asked = subprocess.run([*UV, *question], input="onnxruntime>=1.24", capture_output=True, text=True, check=False)
    if asked.returncode == 0:
        raise Refused("ONNX Runtime has wheels for musl now: this row should become a place")
    raise CannotBeHad("not supported: ONNX Runtime has no wheel for musl, and no source on the index")


ROWS: dict[str, Row] = {
    **{
        f"python {version}": Row(f"Python {version}", functools.partial(places.environment, python=version))
        for version in ("3.11", "3.12", "3.13", "3.14")
    },
    **{
        f"onnxruntime 1.{minor}": Row("the newest patch of a release of ONNX Runtime", _with_runtime(f"1.{minor}"))
        for minor in range(24, 32)
    },
    "onnxruntime nightly": Row("what will be the next release of ONNX Runtime", _nightly),
    "lowest": Row(
        "the oldest of every dependency that pyproject.toml allows, extras included",
        functools.partial(places.environment, python="3.11", lowest=True, extras=_EXTRAS),
        (*TESTS, *_OF_EXTRAS),
    ),
    "lowest dashboard": Row(
        "the oldest of what the dashboard depends on, which is newer than what the rest does",
        functools.partial(places.environment, python="3.11", lowest=True, extras=("app",)),
        _OF_THE_APP,
    ),
    "newest": Row(
        "the newest of every dependency, extras included",
        functools.partial(places.environment, python="3.13", extras=(*_EXTRAS, "app")),
        (*TESTS, *_OF_EXTRAS, *_OF_THE_APP),
    ),
    **{
        f"threads {count}": Row(
            f"{count} threads in each session, stock against planned", places.here, (str(count),),
            ("campaigns.threads",), installs=False,
        )
        for count in _THREADS
    },
    "unprivileged": Row("as a user who owns nothing but a home", places.unprivileged),
    **{
        f"image {suite}": Row(f"a bare Debian {suite} with its Python", functools.partial(places.image, suite=suite))
        for suite in ("bookworm", "trixie", "sid")
    },
    "cgroup v2": Row(
        "a machine whose control groups limit memory", functools.partial(places.machine, suite="bookworm"), _LIMITED
    ),
    "musl": Row("a system without glibc", _musl),
    "here": Row("the environment this runs in, as it is", places.here, installs=False),
}  # fmt: skip


def attempt(row: Row, folder: Path, planted: bool = False) -> Came:
    """Make the place and run the tests in it."""
    try:
        place = row.make(folder)
    except CannotBeHad as error:
        return Came("–", f"not run: {error}", None)
    except Refused as error:
        return Came("–", f"**failed**: {error}", False)
    path = ""
    if planted:
        path = f"{place.inside or place.folder}/spoiled"
        place.run("-m", "campaigns.spoiled", path)
    facts = re.sub(r"\s+(?=,)|\s+$", "", place.run("-c", _FACTS).stdout)
    started = time.monotonic()
    done = place.run("-m", *row.module, *row.tests, path=path)
    seconds = time.monotonic() - started
    lines = [line.strip("= ") for line in done.stdout.splitlines() if line.strip()] or ["nothing was said"]
    if done.returncode == 0:
        said = re.sub(r" in [\d.]+s.*", "", lines[-1])
        return Came(facts, f"{said}, {seconds:.0f} s", True)
    found = [line for line in lines if re.match(r"FAILED|ERROR|E  |\S*Error\b", line)]
    return Came(facts, f"**failed**: {'; '.join(dict.fromkeys([*found[:6], lines[-1]]))}"[:1500], False)


def processor() -> str:
    """What its kernels can choose from."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    name = next((line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name")), "")
    return f"{name}, {'with' if 'avx512f' in flags else 'without'} AVX-512, {text.count('processor')} processors"


def chosen_rows(words: Sequence[str]) -> dict[str, Row]:
    """Those whose names begin with one of the words; all but `here` without any."""
    if not words:
        return {name: row for name, row in ROWS.items() if name != "here"}
    return {name: row for name, row in ROWS.items() if any(f"{name} ".startswith(f"{word} ") for word in words)}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m campaigns.everywhere", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="rows whose names begin so")
    parser.add_argument("--list", action="store_true", help="say which rows there are")
    parser.add_argument("--planted", action="store_true", help="a native module lacks a symbol: every row must fail")
    chosen = parser.parse_args()
    rows = chosen_rows(chosen.rows)
    if unknown := [word for word in chosen.rows if not chosen_rows([word])]:
        parser.error(f"there is no row '{unknown[0]}'")
    if chosen.list:
        for name, row in rows.items():
            print(f"{name:<20} {row.about}")
        return 0
    if any(row.installs for row in rows.values()):
        if not list(DIST.glob("onnxmem-*.whl")):
            parser.error("there are no wheels in dist/: make dist")
        try:
            places.check_index()
        except CannotBeHad as error:
            parser.error(str(error))
    print(f"{processor()}; {platform.system()} {platform.release()}\n")
    print("| row | where | what came of it |\n|---|---|---|", flush=True)
    came = []
    for name, row in rows.items():
        with tempfile.TemporaryDirectory(prefix="om-") as temporary:
            Path(temporary).chmod(0o755)  # for whoever else is to go there
            came.append(attempt(row, Path(temporary) / "row", chosen.planted))
        print(f"| {name} | {came[-1].place} | {came[-1].said} |", flush=True)
    verdicts = [each.ok for each in came if each.ok is not None]
    print(f"\n{len(verdicts)} rows run, {verdicts.count(False)} failed, {len(came) - len(verdicts)} not run")
    right = all(ok is not chosen.planted for ok in verdicts) and (bool(verdicts) or not chosen.planted)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
