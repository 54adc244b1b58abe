"""Weights beside the model: where they may lie, and what is wrong with them."""

from __future__ import annotations

import os
import resource
from pathlib import Path
from typing import Any

import pytest
from onnx import ModelProto, TensorProto, helper

from onnxmem.errors import ExternalDataError
from onnxmem.model.dims import symbol
from onnxmem.model.model import Model
from tests.helpers import model_of, saved

node = helper.make_node
F = TensorProto.FLOAT


def with_external(shape: tuple[int, ...] = (4, 8), elem_type: int = F, **entries: Any) -> ModelProto:
    """x @ w, where w is kept outside."""
    weight = TensorProto(name="w", data_type=elem_type, dims=shape, data_location=TensorProto.EXTERNAL)
    for key, value in ({"location": "w.bin"} | entries).items():
        weight.external_data.add(key=key, value=str(value))
    return model_of([node("MatMul", ["x", "w"], ["y"])], {"x": ("N", shape[0])}, ["y"], [weight])


@pytest.mark.parametrize("entries", [{}, {"length": 128}, {"offset": 64}, {"offset": 64, "length": 128}])
def test_external_data_is_seen_in_its_file(entries: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(64 + 128))
    model = Model.open(saved(with_external(**entries), tmp_path))
    for view in ("raw", "optimized"):
        (weight,) = model.graph(view=view).weights
        assert (weight.name, weight.shape, weight.size) == ("w", (4, 8), 128)


def test_external_data_may_be_below_the_folder_or_behind_a_link_of_the_users(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    for path in (folder / "parts" / "w.bin", tmp_path / "w.bin"):
        path.write_bytes(bytes(128))
    (folder / "link.bin").symlink_to("parts/w.bin")
    (folder / "leaves.bin").symlink_to(tmp_path / "w.bin")
    for location in ("parts/w.bin", "parts/../parts/w.bin", "link.bin", "leaves.bin"):
        model = Model.open(saved(with_external(location=location), folder))
        for view in ("raw", "optimized"):
            assert [weight.size for weight in model.graph(view=view).weights] == [128]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"location": "gone.bin"}, "'gone.bin' of tensor 'w' is missing"),
        ({"location": "folder"}, "is missing"),
        ({"location": ""}, "outside the model's folder"),
        ({"location": "../w.bin"}, "outside the model's folder"),
        ({"location": "/etc/passwd"}, "outside the model's folder"),
        ({"location": "parts/../../w.bin"}, "outside the model's folder"),
        ({"location": "w\0.bin"}, "'w"),
        ({"location": "w" * 5000}, "'w"),
        ({"location": "loop.bin"}, "'loop.bin'"),
        ({"offset": 100}, "too short"),
        ({"offset": 1000}, "truncated"),
        ({"offset": 64, "length": 128}, "truncated"),
        ({"length": 64}, "takes 128 bytes by its shape, but its external data has 64"),
        ({"offset": -4}, "'w'"),
        ({"length": -128}, "'w'"),
        ({"offset": "many"}, "no number"),
        ({"length": "0x80"}, "no number"),
    ],
)
def test_external_data_that_cannot_be_right(entries: dict[str, Any], message: str, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "folder").mkdir()
    (folder / "w.bin").write_bytes(bytes(128))
    (tmp_path / "w.bin").write_bytes(bytes(128))
    (folder / "loop.bin").symlink_to("loop.bin")
    with pytest.raises(ExternalDataError, match="(?s)" + message):
        Model.open(saved(with_external(**entries), folder)).graph(view="raw")
    with pytest.raises(ExternalDataError):
        Model.open(saved(with_external(**entries), folder)).graph()


def test_the_cache_of_hugging_face_is_read_as_it_is(tmp_path: Path) -> None:
    """Names are links into a folder beside; what is there has no names."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "revision"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    (blobs / "abc").write_bytes(with_external().SerializeToString())
    (blobs / "def").write_bytes(bytes(128))
    (snapshot / "model.onnx").symlink_to("../../blobs/abc")
    (snapshot / "w.bin").symlink_to("../../blobs/def")
    (tmp_path / "latest").symlink_to("snapshots/revision")
    for folder in (snapshot, tmp_path / "latest"):
        for view in ("raw", "optimized"):
            (weight,) = Model.open(folder / "model.onnx").graph(view=view).weights
            assert weight.size == 128


def test_more_than_two_gib_are_read_as_fast_as_nothing(tmp_path: Path) -> None:
    """The file is sparse: 6 GiB of zeros on disk take no room, and reading them would take this process's memory."""
    rows, columns = 40_000, 40_000
    with (tmp_path / "w.bin").open("wb") as file:
        os.truncate(file.fileno(), 4 * rows * columns)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    model = Model.open(saved(with_external((rows, columns)), tmp_path))
    for view in ("raw", "optimized"):
        graph = model.graph(view=view)
        assert [weight.size for weight in graph.weights] == [4 * rows * columns]
        assert graph.tensors["y"].size == 4 * columns * symbol("N")
    assert model.duplicates() == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 * 1024


def test_external_data_in_a_branch(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(128 * 1024))
    for shape in ((4, 8), (4, 8 * 1024)):
        outer = with_external(shape)
        branch = helper.make_graph(
            list(outer.graph.node),
            "branch",
            [],
            [helper.make_tensor_value_info("y", F, None)],
            list(outer.graph.initializer),
        )
        other = helper.make_graph([node("Identity", ["y0"], ["y"])], "other", [], list(branch.output))
        nodes = [node("If", ["c"], ["z"], then_branch=branch, else_branch=other)]
        inputs: dict[str, Any] = {
            "c": helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            "x": ("N", 4),
            "y0": ("N", shape[1]),
        }
        model = Model.open(saved(model_of(nodes, inputs, ["z"]), tmp_path))
        for view in ("raw", "optimized"):
            graph = model.graph(view=view)
            assert [weight.size for weight in graph.all_weights()] == [4 * shape[0] * shape[1]]
            assert graph.tensors["z"].size == 4 * shape[1] * symbol("N")
