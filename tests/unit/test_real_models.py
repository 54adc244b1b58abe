"""Fetching real models: once, whole or not at all; and what they are fed makes them run."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from benchmarks import real_models
from benchmarks.real_models import FetchError
from onnxmem.errors import ModelError, UsageError

Download = Callable[[str, Path], str]


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Download], None]:
    """An empty cache, and a stand-in for pip."""
    monkeypatch.setenv("ONNXMEM_MODEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(real_models, "_FAILED", {})
    return lambda download: monkeypatch.setattr(real_models, "_pip_download", download)


def wheel_of_g2p(package: str, folder: Path, members: tuple[str, ...] = ("bert_pron.onnx", "tiny-pron.onnx")) -> str:
    assert package == "g2p-id==0.0.4"
    with zipfile.ZipFile(folder / "g2p_id-0.0.4-py3-none-any.whl", "w") as wheel:
        for member in members:
            wheel.writestr(f"g2p_id/{member}", member * 1000)
        wheel.writestr("g2p_id/large_and_not_wanted.json", "x")
    return ""


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock")


def test_one_download_brings_all_models_of_a_wheel_and_nothing_else(
    index: Callable[[Download], None], tmp_path: Path
) -> None:
    index(wheel_of_g2p)
    path = real_models.fetch("bert_pron")
    assert path.read_text() == "bert_pron.onnx" * 1000
    assert files_in(tmp_path / "cache") == ["bert_pron.onnx", "tiny-pron.onnx"]

    def refuse(package: str, folder: Path) -> str:
        raise AssertionError("downloaded twice")

    index(refuse)
    assert real_models.fetch("bert_pron") == path
    assert real_models.fetch("tiny_pron").name == "tiny-pron.onnx"


def test_several_at_once_download_once(index: Callable[[Download], None]) -> None:
    downloads: list[str] = []
    start = threading.Barrier(4)

    def download(package: str, folder: Path) -> str:
        downloads.append(package)
        return wheel_of_g2p(package, folder)

    def fetch(key: str) -> None:
        start.wait()
        real_models.fetch(key)

    index(download)
    threads = [threading.Thread(target=fetch, args=(key,)) for key in ("bert_pron", "tiny_pron") * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(downloads) == 1


def test_an_interrupted_fetch_leaves_nothing_that_looks_like_a_model(
    index: Callable[[Download], None], tmp_path: Path
) -> None:
    def interrupted(package: str, folder: Path) -> str:
        wheel_of_g2p(package, folder)
        raise KeyboardInterrupt

    index(interrupted)
    with pytest.raises(KeyboardInterrupt):
        real_models.fetch("bert_pron")
    assert files_in(tmp_path / "cache") == []

    # A killed process cannot tidy up; what it left must not disturb the next one.
    left = tmp_path / "cache" / "g2p-id-0.0.4" / ".download"
    left.mkdir(parents=True)
    (left / "half.whl").write_text("PK")
    index(wheel_of_g2p)
    assert real_models.fetch("bert_pron").is_file()
    assert files_in(tmp_path / "cache") == ["bert_pron.onnx", "tiny-pron.onnx"]


def test_without_a_network_the_error_names_the_package_and_is_not_asked_for_again(
    index: Callable[[Download], None],
) -> None:
    asked: list[str] = []

    def unreachable(package: str, folder: Path) -> str:
        asked.append(package)
        return "no route to host"

    index(unreachable)
    for key in ("bert_pron", "tiny_pron"):
        with pytest.raises(FetchError, match=r"g2p-id==0\.0\.4 could not be downloaded: no route to host"):
            real_models.fetch(key)
    assert asked == ["g2p-id==0.0.4"]


def test_a_model_that_cannot_be_fetched_skips_the_test(
    index: Callable[[Download], None], real_model: Callable[[str], Path]
) -> None:
    index(lambda package, folder: "no route to host")
    with pytest.raises(pytest.skip.Exception, match="no route to host"):
        real_model("bert_pron")


def test_broken_and_incomplete_wheels_are_named(index: Callable[[Download], None], tmp_path: Path) -> None:
    def broken(package: str, folder: Path) -> str:
        (folder / "broken.whl").write_text("not a zip file")
        return ""

    index(broken)
    with pytest.raises(FetchError, match=r"g2p-id==0\.0\.4 cannot be unpacked"):
        real_models.fetch("bert_pron")
    index(lambda package, folder: wheel_of_g2p(package, folder, ("bert_pron.onnx",)))
    with pytest.raises(ModelError, match=r"holds no g2p_id/tiny-pron\.onnx"):
        real_models.fetch("tiny_pron")


def test_unwritable_cache_is_named(index: Callable[[Download], None], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match=r"the model cache .* cannot be written"):
        real_models.fetch("det")


def test_unknown_keys_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match="there is no model 'detector'") as caught:
        real_models.fetch("detector")
    assert "known: det, rec, cls" in caught.value.hint


def test_keys_and_places_are_unique() -> None:
    models = real_models.real_models()
    assert len({model.key for model in models}) == len(models)
    assert len({(model.package, Path(model.member).name) for model in models}) == len(models)


def test_feeds_depend_on_the_seed_and_take_other_shapes() -> None:
    model = real_models.find("magika")
    first, again, other = (real_models.feeds(model, seed=seed)["bytes"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert real_models.feeds(model, {"bytes": (4, 2048)})["bytes"].shape == (4, 2048)


@pytest.mark.models
@pytest.mark.parametrize("key", [model.key for model in real_models.real_models()])
def test_a_real_model_runs_on_its_feeds(key: str, real_model: Callable[[str], Path]) -> None:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    path = str(real_model(key))
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = real_models.feeds(real_models.find(key))
    assert feeds.keys() == {value.name for value in session.get_inputs()}
    for output in session.run(None, feeds):
        assert output.size > 0
        assert np.isfinite(output).all()


@pytest.mark.models
def test_the_list_shows_what_was_fetched(real_model: Callable[[str], Path], capsys: pytest.CaptureFixture[str]) -> None:
    real_model("cls")
    assert real_models.main(["cls"]) == 0
    shown = capsys.readouterr()
    assert "rapidocr==3.10.0" in shown.out
    assert "x=1x3x48x192" in shown.out
    assert "[1/1] cls" in shown.err
