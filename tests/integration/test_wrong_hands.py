"""Packages from strangers: nothing that they say leads out of their folder, or has anything else done."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import onnxmem
from onnxmem.app import uploads
from onnxmem.errors import ModelError, OnnxmemError, PlanError, UsageError
from onnxmem.measurement.signature import read_signature
from onnxmem.session.package import MANIFEST, PLANS, Manifest, open_package, verify_package
from onnxmem.session.packed_graphs import TiledGraph
from onnxmem.session.stored_files import hash_file


@pytest.fixture
def copy(packed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(packed, tmp_path / "copy"))


def signed(folder: Path, **changes: Any) -> Path:
    """The package with another manifest, whose hashes are right: whoever makes a package can make those."""
    manifest = Manifest.parse((folder / MANIFEST).read_text(), folder)
    files = tuple(hash_file(path) for path in sorted(folder.iterdir()) if path.name != MANIFEST)
    (folder / MANIFEST).write_text(replace(manifest, **{"files": files, **changes}).text())
    return folder


def tiled(model: str, plan: str) -> TiledGraph:
    shapes = {"x": (4, 512)}
    return TiledGraph(inputs=shapes, model=model, plan=plan, nodes=1, extra_work=0.0, peak_bytes=1, lower_bound_bytes=1)


@pytest.mark.parametrize("name", ["../chain.onnx", "/etc/passwd", "sub/model.onnx", "..", "", "other.onnx"])
def test_no_name_leads_out_of_the_folder(copy: Path, name: str) -> None:
    made = open_package(copy).manifest
    for changes in (
        {"model": name},
        {"tiled": (tiled(name, "model.onnx"),)},
        {"tiled": (tiled("model.onnx", name),)},
    ):
        (copy / MANIFEST).write_text(replace(made, **changes).text())
        with pytest.raises(ModelError, match="none of its own"):
            onnxmem.InferenceSession(copy)


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("options", "optimized_model_filepath", "written.onnx"),
        ("options", "profile_file_prefix", "written"),
        ("options", "enable_profiling", True),
        ("options", "log_severity_level", 0),
        ("config", "ep.context_file_path", "written.onnx"),
        ("config", "session.collect_node_memory_stats_to_file", "written.csv"),
        ("config", "session.model_external_initializers_file_folder_path", "/etc"),
    ],
)
def test_a_package_cannot_have_onnx_runtime_write_files(
    copy: Path, monkeypatch: pytest.MonkeyPatch, kind: str, name: str, value: Any
) -> None:
    signed(copy, **{kind: {name: value}})
    monkeypatch.chdir(copy.parent)
    before = sorted(copy.parent.rglob("*"))
    with pytest.raises(ModelError, match=f"sets '{name}', which packages do not"):
        onnxmem.InferenceSession(copy)
    assert sorted(copy.parent.rglob("*")) == before


def test_a_link_leads_only_to_what_the_package_vouches_for(copy: Path) -> None:
    weights = copy / "weights.bin"
    aside = weights.rename(copy.parent / "aside.bin")
    weights.symlink_to(aside)
    open_package(copy)  # as in the cache of a download
    secret = copy.parent / "secret"
    secret.write_bytes(bytes(aside.stat().st_size))
    weights.unlink()
    weights.symlink_to(secret)
    with pytest.raises(ModelError, match="are not what was written"):
        onnxmem.InferenceSession(copy)


def test_a_pipe_or_a_device_is_no_file(copy: Path) -> None:
    (copy / "weights.bin").unlink()
    os.mkfifo(copy / "weights.bin")
    with pytest.raises(ModelError, match="has lost"):
        open_package(copy)
    (copy / MANIFEST).unlink()
    os.mkfifo(copy / MANIFEST)
    with pytest.raises(OnnxmemError, match="it is not a file"):
        open_package(copy)


@pytest.mark.parametrize("put_back", [False, True])
def test_what_is_swapped_between_check_and_use_is_noticed(
    copy: Path, monkeypatch: pytest.MonkeyPatch, put_back: bool
) -> None:
    weights, aside = copy / "weights.bin", copy.parent / "aside.bin"
    make = onnxruntime.InferenceSession.__init__

    def swapped(self: Any, *arguments: Any, **keywords: Any) -> None:
        """The package was looked at, and ONNX Runtime opens what is there under the same name now."""
        weights.rename(aside)
        shutil.copy(aside, weights)
        make(self, *arguments, **keywords)
        if put_back:
            aside.replace(weights)

    monkeypatch.setattr(onnxruntime.InferenceSession, "__init__", swapped)
    with pytest.raises(ModelError, match="was changed while"):
        onnxmem.InferenceSession(copy)


def test_a_package_that_was_replaced_since_it_was_opened_is_not_mixed_with_the_new_one(copy: Path) -> None:
    package = open_package(copy)
    shutil.copy(copy / "weights.bin", copy.parent / "aside.bin")
    (copy.parent / "aside.bin").replace(copy / "weights.bin")
    with pytest.raises(ModelError, match="was changed since it was opened"), package.unchanged():
        raise AssertionError("nothing is made of it")


def test_weights_that_the_graph_of_a_package_seeks_elsewhere_are_refused(copy: Path) -> None:
    secret = copy.parent / "secret.bin"
    shutil.copy(copy / "weights.bin", secret)
    for location in ("../secret.bin", str(secret), "unlisted.bin", "./weights.bin"):
        proto = onnx.load_model(copy / "model.onnx", load_external_data=False)
        for tensor in proto.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = location
        (copy / "model.onnx").write_bytes(proto.SerializeToString())
        signed(copy)
        shutil.copy(secret, copy / "unlisted.bin")
        for use in (onnxmem.InferenceSession, verify_package, read_signature):
            with pytest.raises(ModelError, match="which is no file of its package"):
                use(copy)
        (copy / "unlisted.bin").unlink()


FEEDS = {"x": np.ones((8, 512), np.float32)}


def _overlapping(plan: dict[str, Any]) -> None:
    plan["offsets"] = [0 if offset >= 0 else offset for offset in plan["offsets"]]


def _small(plan: dict[str, Any]) -> None:
    plan["sizes"] = [-size for size in plan["sizes"]]


def _huge(plan: dict[str, Any]) -> None:
    plan["offsets"] = [2**64 for _ in plan["offsets"]]


def _far(plan: dict[str, Any]) -> None:
    plan["offsets"] = [2**63 - 64 if offset >= 0 else offset for offset in plan["offsets"]]


def _short(plan: dict[str, Any]) -> None:
    plan["lowers"] = plan["lowers"][:-1]


def _endless(plan: dict[str, Any]) -> None:
    plan["uppers"] = [2**62 for _ in plan["uppers"]]


def _no_numbers(plan: dict[str, Any]) -> None:
    plan["offsets"] = ["0" for _ in plan["offsets"]]


LIES = (_overlapping, _small, _huge, _far, _short, _endless, _no_numbers)


@pytest.mark.parametrize("lie", LIES)
def test_a_plan_that_lies_is_refused_before_a_byte_is_written(chain: Path, lie: Callable[[Any], None]) -> None:
    with_plans = onnxmem.InferenceSession(chain, keep_plans=False)
    with_plans.run(None, FEEDS)
    (plan,) = with_plans.export_plans()
    lie(plan)
    with pytest.raises(PlanError):
        onnxmem.InferenceSession(chain, plans=[plan])


@pytest.mark.parametrize("content", ["", "{}", "[[]]", "[" * 100_000, "[{}]", '[{"inputs": 1}]', "\x00", "[1e999]"])
def test_what_is_no_plan_is_refused(copy: Path, content: str) -> None:
    (copy / PLANS).write_text(content)
    with pytest.raises(PlanError):
        onnxmem.InferenceSession(signed(copy))


def test_memory_and_sockets_of_an_isolated_session_are_private_to_the_user(
    chain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with onnxmem.IsolatedSession(chain, mode="stock") as session:
        session.run(None, FEEDS)
        named = {line.split()[6]: line.split()[7:] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
        memory = 0
        for pid in (os.getpid(), session.pid):
            for entry in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(FileNotFoundError):
                    leads = str(entry.readlink())
                    if leads.startswith("socket:") and pid != os.getpid():
                        assert not named.get(leads[8:-1]), "whoever knows the name of a socket can connect to it"
                    if "memfd:onnxmem" in leads:
                        memory += 1
                        assert entry.stat().st_mode & 0o077 == 0
            memory += sum("memfd:onnxmem" in line for line in Path(f"/proc/{pid}/maps").read_text().splitlines())
        assert memory > 0 and not list(tmp_path.glob("*onnxmem*"))


@pytest.mark.parametrize(
    "name", ["../../x.onnx", "/etc/x.onnx", "..", "\U00020000" * 90 + ".onnx", "a\x00b\n.onnx", "x.pt", "x.json", "x"]
)
def test_an_upload_stays_in_its_folder_or_is_refused(chain: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "space").mkdir()
    space, content = SimpleNamespace(folder=tmp_path / "space"), chain.read_bytes()
    uploaded = SimpleNamespace(name=name, size=len(content), getbuffer=lambda: content)
    if "onnx" not in name:
        with pytest.raises(UsageError, match="is no model"):
            uploads.keep(space, uploaded, 2**30)  # type: ignore[arg-type]
    else:
        kept = uploads.keep(space, uploaded, 2**30)  # type: ignore[arg-type]
        assert kept.parent.parent == space.folder and kept.name.isprintable()
    assert [entry.name for entry in tmp_path.iterdir()] == ["space"]


def test_an_upload_that_is_not_what_it_says_is_gone(tmp_path: Path) -> None:
    space = SimpleNamespace(folder=tmp_path)
    for name in ("x.onnx", "x.ort"):
        uploaded = SimpleNamespace(name=name, size=8, getbuffer=lambda: b"0123ORTM")
        with pytest.raises(ModelError):
            uploads.keep(space, uploaded, 2**30)  # type: ignore[arg-type]
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_the_look_at_an_upload_has_only_so_much_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.onnx").write_bytes(bytes(100))
    limits: list[Any] = []

    def starved(_: Any) -> Any:
        raise MemoryError

    monkeypatch.setattr(resource, "setrlimit", lambda *limit: limits.append(limit))
    monkeypatch.setattr(uploads, "_look", starved)
    with pytest.raises(ModelError, match=r"'model.onnx' takes more than 2\.0 GiB to be read"):
        uploads._look_within(uploads.Task(path=str(tmp_path / "model.onnx")))
    assert limits == [(resource.RLIMIT_DATA, (2**31 + 300, 2**31 + 300))]
