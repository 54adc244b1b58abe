"""The table of a project: all of it is checked before anything runs, and what is wrong is named by its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from onnxmem.checking.settings import find_settings, read_settings
from onnxmem.errors import UsageError
from onnxmem.history.tolerance import Tolerance

MIB = 2**20


@pytest.fixture
def project(tmp_path: Path, model: Path) -> Path:
    """A folder with a model."""
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "net.onnx").write_bytes(model.read_bytes())
    return tmp_path


def write(project: Path, text: str) -> Path:
    file = project / "pyproject.toml"
    file.write_text(text)
    return file


def test_all_combinations(project: Path) -> None:
    file = write(
        project,
        """
        [project]
        name = "mine"
        [tool.onnxmem]
        threads = 1
        figure = "run"
        history = "memory.sqlite"
        baseline = "history"
        [[tool.onnxmem.check]]
        model = "models/net.onnx"
        shapes = [{x = [1, 64]}, {x = "8x64"}]
        budget = {stock = "300MiB", planned = 1048576}
        [[tool.onnxmem.check]]
        name = "small"
        model = "models/net.onnx"
        figure = "peak"
        dims = {batch = 4}
        mode = "tuned"
        budget = "1GiB"
        tolerance = "4MiB"
        options = {enable_mem_pattern = false}
        config = {"session.disable_prepacking" = "1"}
        """,
    )
    settings = read_settings(file)
    found = [(c.scenario.mode, c.scenario.shapes, c.budget, c.figure, c.scenario.threads) for c in settings.cases]
    assert found == [
        ("stock", {"x": (1, 64)}, 300 * MIB, "run", 1),
        ("stock", {"x": (8, 64)}, 300 * MIB, "run", 1),
        ("planned", {"x": (1, 64)}, MIB, "run", 1),
        ("planned", {"x": (8, 64)}, MIB, "run", 1),
        ("tuned", {}, 1024 * MIB, "peak", 1),
    ]
    last = settings.cases[-1]
    assert last.title == "small" and last.tolerance == Tolerance.parse("4MiB") and last.scenario.dims == {"batch": 4}
    assert last.scenario.options == {"enable_mem_pattern": False}
    assert last.scenario.config == {"session.disable_prepacking": "1"}
    assert settings.history == project / "memory.sqlite" and settings.baseline == "history"
    assert len(settings.about(project / "models" / "net.onnx")) == 5
    with pytest.raises(UsageError, match="has no budget for"):
        settings.about(Path("other.onnx"))


def test_the_nearest_table_upwards(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(project, '[[tool.onnxmem.check]]\nmodel = "models/net.onnx"\nbudget = "1MiB"\n')
    inner = project / "packages" / "inner"
    inner.mkdir(parents=True)
    write(inner, '[project]\nname = "no table here"\n')
    monkeypatch.chdir(inner)
    settings = find_settings()
    assert settings.file.resolve() == project / "pyproject.toml"
    assert settings.cases[0].scenario.model.resolve() == project / "models" / "net.onnx"


def test_no_table_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        UsageError, match=r"no --budget was given, and no pyproject.toml .* has a \[tool.onnxmem\] table"
    ):
        find_settings()
    with pytest.raises(UsageError, match="cannot read"):
        find_settings(tmp_path / "none.toml")


CHECK = '[[tool.onnxmem.check]]\nmodel = "models/net.onnx"\n'


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("[tool.onnxmem", "is not a TOML file", ""),
        ("[tool]\nonnxmem = 3", "'tool.onnxmem' cannot be '3'", "a table"),
        ("[tool.other]", "has no [tool.onnxmem] table", ""),
        ("[tool.onnxmem]\n", "'tool.onnxmem.check' is empty", "[[tool.onnxmem.check]]"),
        ("[tool.onnxmem]\ncheck = 1", "'tool.onnxmem.check' cannot be '1'", "a list of tables"),
        ("[tool.onnxmem]\ncheck = [1]", "'tool.onnxmem.check[0]' cannot be '1'", "a table"),
        ('[tool.onnxmem]\nmodel = "x"', "there is no key 'tool.onnxmem.model'", "allowed: budget, mode"),
        (CHECK + 'bugdet = "1MiB"', "there is no key 'tool.onnxmem.check[0].bugdet'", "did you mean 'budget'?"),
        (CHECK + 'budget = "lots"', "'tool.onnxmem.check[0].budget' cannot be 'lots'", "a size such as"),
        (CHECK + "budget = 0", "'tool.onnxmem.check[0].budget' cannot be '0'", "a size such as"),
        (CHECK + "budget = true", "'tool.onnxmem.check[0].budget' cannot be 'True'", "a size such as"),
        (CHECK + 'budget = {fast = "1MiB"}', "check[0].budget' cannot be", "a table of sizes by mode"),
        (CHECK + 'mode = "fast"', "'tool.onnxmem.check[0].mode' cannot be 'fast'", "one of stock, tuned"),
        (CHECK + "mode = []", "'tool.onnxmem.check[0].mode' cannot be '[]'", "one of stock, tuned"),
        (CHECK + 'figure = "weight"', "'tool.onnxmem.check[0].figure' cannot be", "one of peak, load"),
        (CHECK + 'by = "guess"', "'tool.onnxmem.check[0].by' cannot be 'guess'", "one of measurement, estimate"),
        (CHECK + 'by = "estimate"\noptions = {a = 1}', "'tool.onnxmem.check[0]': what session options", "measure"),
        (CHECK + "threads = 0", "'tool.onnxmem.check[0].threads' cannot be '0'", "a number from 1"),
        (CHECK + "threads = 99999", "'tool.onnxmem.check[0]': threads must be between", ""),
        (CHECK + 'shapes = {x = "1y64"}', "'tool.onnxmem.check[0].shapes' cannot be", "{x = [1, 3, 640, 640]}"),
        (CHECK + "shapes = {x = [1, -64]}", "'tool.onnxmem.check[0].shapes' cannot be", "a list of them"),
        (CHECK + "dims = {batch = 0}", "'tool.onnxmem.check[0].dims' cannot be", "{batch = 8}"),
        (CHECK + "ranges = {x = [3, 1]}", "'tool.onnxmem.check[0].ranges' cannot be", "{ids = [0, 30522]}"),
        (CHECK + 'tolerance = "much"', "'tool.onnxmem.check[0].tolerance' cannot be", "4MiB"),
        (CHECK + CHECK + "name = 3", "'tool.onnxmem.check[1].name' cannot be '3'", "a text"),
        (CHECK + 'mode = "stock"\nbudget = {planned = "1MiB"}', "check[0].budget' has budgets for planned", "one for"),
        (CHECK + 'mode = "ort"', "'tool.onnxmem.check[0]': mode 'ort' needs an .ort file", "pack"),
        ('[[tool.onnxmem.check]]\nbudget = "1MiB"', "'tool.onnxmem.check[0]' has no 'model'", "model ="),
        ('[[tool.onnxmem.check]]\nmodel = "none.onnx"', "'tool.onnxmem.check[0].model' is", ""),
    ],
)
def test_what_is_wrong_is_named(project: Path, text: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_settings(write(project, text))
    assert said in str(raised.value), str(raised.value)
    assert hint in raised.value.hint, raised.value.hint
    assert str(project / "pyproject.toml") in str(raised.value)
