"""Places to try a wheel in: an environment of its own, another user, the bare system of another release, a machine."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from campaigns.machine import PROGRAMS
from scripts.dist import ROOT, UV, interpreter, stale, version_of, wheel_for

NOBODY = 65534
_TREE = ("tests", "benchmarks", "campaigns", "scripts", "examples", "docs", "src",
         "README.md", "CMakeLists.txt", "pyproject.toml")  # fmt: skip
"""What tests read. They import what is installed: `src` is not on their path."""
_IMAGE_PACKAGES = "python3,python3-venv"
_MACHINE_PACKAGES = "linux-image-cloud-amd64,initramfs-tools"
_REFUSED = "cannot be installed"
_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


class CannotBeHad(Exception):
    """Why there is no such place here, in a sentence: nothing is wrong with the wheel."""


class Refused(Exception):
    """Why the wheel cannot be installed in a place that there is."""


class Place(NamedTuple):
    """Where commands are run, how, and by which Python."""

    python: str
    folder: Path
    """As seen from here; there is a copy of the tests in it."""
    prefix: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    inside: str = ""
    """The same folder as seen from there, if that is another root."""

    def run(self, *words: str, path: str = "") -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments beside the tests; `path` is searched for packages first."""
        # Nothing that is set here for other things: neither where packages lie, nor what settings plans have.
        kept = {name: os.environ[name] for name in ("LANG", "ONNXMEM_MODEL_CACHE") if name in os.environ}
        shared = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"}
        home = self.inside or str(self.folder)
        own = {"HOME": home, "TMPDIR": f"{home}/tmp"} | ({"PYTHONPATH": path} if path else {})
        return subprocess.run(
            [*self.prefix, self.python, *words],
            cwd=self.folder / "tree",
            env=kept | shared | own | dict(self.settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )


def _copy_tests(folder: Path) -> None:
    (folder / "tmp").mkdir(parents=True)
    for name in _TREE:
        source, target = ROOT / name, folder / "tree" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__", "*.so", "made"))
        else:
            shutil.copy(source, target)


def _wheel(version: str) -> Path:
    wheel = wheel_for(version)
    if wheel is None:
        raise CannotBeHad(f"dist/ has no wheel for Python {version}: make dist")
    if stale(wheel):
        raise CannotBeHad(f"{wheel.name} is older than the sources: make dist")
    return wheel


def _check(done: subprocess.CompletedProcess[str], what: str, kind: type[Exception] = CannotBeHad) -> None:
    if done.returncode != 0:
        said = [line.strip() for line in (done.stdout + (done.stderr or "")).splitlines() if line.strip()]
        raise kind(f"{what}: {' '.join(said[-4:]) or 'nothing was said'}")


def check_index() -> None:
    """Whether packages can be had at all: afterwards, what cannot be installed is a finding."""
    _check(_quietly(*UV, "pip", "compile", "--no-deps", "-", text="pytest"), "there is no index of packages")


def here(folder: Path) -> Place:
    """The environment this runs in, as it is."""
    _copy_tests(folder)
    return Place(sys.executable, folder)


def environment(
    folder: Path,
    python: Path | str,
    *packages: str,
    options: Sequence[str] = (),
    lowest: bool = False,
    extras: Sequence[str] = (),
) -> Place:
    """The wheel with what it depends on, and what tests need, in an environment of its own."""
    if isinstance(python, str):
        found = interpreter(python)
        if found is None:
            raise CannotBeHad(f"there is no Python {python} here")
        python = found
    wheel = _wheel(version_of([str(python)]))
    _copy_tests(folder)
    home = folder / "environment"
    _check(_quietly(*UV, "venv", "--python", python, home), "no environment")
    wanted = [f"{wheel}[{','.join(extras)}]" if extras else str(wheel), "pytest", "hypothesis", *packages]
    if lowest:
        # The oldest of what pyproject.toml names; what those depend on in turn may be newer.
        named = [word for extra in extras for word in ("--extra", extra)]
        versions = folder / "lowest.txt"
        command = (*UV, "pip", "compile", "--python", str(home), "--resolution", "lowest-direct", "--no-header", *named)
        _check(_quietly(*command, "--output-file", versions, ROOT / "pyproject.toml"), "no versions")
        wanted += ["--constraint", str(versions)]
    only_wheels = [] if lowest else ["--only-binary", ":all:"]  # psutil 5.9.0 is older than Python 3.11
    install = (*UV, "pip", "install", "--compile-bytecode", "--python", str(home))
    _check(_quietly(*install, *only_wheels, *options, *wanted), _REFUSED, Refused)
    return Place(str(home / "bin" / "python"), folder)


def unprivileged(folder: Path) -> Place:
    """As nobody, who owns a home and nothing else."""
    if os.geteuid() != 0:
        raise CannotBeHad("only root can become somebody else; every other row was run without rights")
    if not shutil.which("setpriv"):
        raise CannotBeHad("there is no setpriv here")
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    found = [each for version in ("3.14", "3.13", "3.12", "3.11") for each in _pythons(version)]
    python = next((each for each in found if version_of([*prefix, str(each)])), None)
    if python is None:
        raise CannotBeHad("there is no Python here that everybody may run")
    place = environment(folder, python)
    folder.chmod(0o755)
    for path in (folder, folder / "tmp", folder / "tree", *(folder / "tree").rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    return place._replace(prefix=prefix)


def _pythons(version: str) -> list[Path]:
    system = Path(f"/usr/bin/python{version}")
    return [each for each in (interpreter(version), system if system.exists() else None) if each]


def image(folder: Path, suite: str, more_packages: str = "") -> Place:
    """A minimal system with Python and nothing else, in which pip installs the wheel."""
    if os.geteuid() != 0:
        raise CannotBeHad("only root can make the root of another system")
    if not shutil.which("debootstrap"):
        raise CannotBeHad("there is no debootstrap here")
    root = folder / "root"
    root.mkdir(parents=True)
    packages = ("--variant=minbase", f"--include={_IMAGE_PACKAGES}{more_packages}")
    _check(_quietly("debootstrap", *packages, suite, root), "debootstrap fails")
    shutil.copy("/etc/resolv.conf", root / "etc" / "resolv.conf")
    settings = {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"}
    if certificates := os.environ.get("PIP_CERT", os.environ.get("SSL_CERT_FILE")):
        (root / _CERTIFICATES[1:]).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(certificates, root / _CERTIFICATES[1:])
        settings["PIP_CERT"] = _CERTIFICATES
    _copy_tests(root / "try")
    # Mounts of its own, which end with it, and so do all its processes.
    words = ("unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", "--wd=/try/tree")
    mounted = ("--mount-proc", "sh", "-c", 'mount -t tmpfs tmpfs /dev/shm && exec "$@"', "sh")
    place = Place("python3", root / "try", (*words, *mounted), tuple(settings.items()), "/try")
    wheel = _wheel(version_of([*place.prefix, "python3"]))
    shutil.copy(wheel, root / "try")
    _check(place.run("-m", "venv", "/try/environment"), "no environment")
    place = place._replace(python="/try/environment/bin/python")
    install = ("-m", "pip", "install", "--quiet", "--only-binary", ":all:")
    _check(place.run(*install, f"/try/{wheel.name}", "pytest", "hypothesis"), _REFUSED, Refused)
    return place


def machine(folder: Path, suite: str) -> Place:
    """Such a system in a virtual machine, with a kernel of its own and control groups that are its own to hand out."""
    if missing := [name for name in PROGRAMS if not shutil.which(name)]:
        raise CannotBeHad(f"there is no {missing[0]} here")
    place = image(folder, suite, f",{_MACHINE_PACKAGES}")
    return place._replace(prefix=(sys.executable, "-m", "campaigns.machine", str(folder / "root")))


def _quietly(*command: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in command], input=text, capture_output=True, text=True, check=False)
