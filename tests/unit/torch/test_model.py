"""Files of weights that are refused before PyTorch reads them, and weights that no model takes; without PyTorch."""

from __future__ import annotations

import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from onnxmem.errors import ModelError
from onnxmem.torch import model
from onnxmem.torch.model import put_weights, read_weights


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "import_torch", lambda: SimpleNamespace(load=lambda path, **_: {"weight": path}))


def test_what_pytorch_did_not_write_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "model.pth"
    for method, allowed in ((zipfile.ZIP_STORED, True), (zipfile.ZIP_DEFLATED, False)):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("model/data/0", bytes(2**20))
        if allowed:
            assert read_weights(path) == {"weight": path}
            continue
        with pytest.raises(ModelError, match="is compressed, and what PyTorch writes is not"):
            read_weights(path)
    path.write_bytes(b"PK\3\4 and no archive")
    with pytest.raises(ModelError, match="no file of weights"):
        read_weights(path)


def test_parts_that_lie_over_each_other(tmp_path: Path) -> None:
    """Each of them is stored, but all together they are more than the file."""
    path = tmp_path / "model.pth"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data/0", bytes(2**16))
        archive.filelist *= 100
    with pytest.raises(ModelError, match=r"model\.pth"):
        read_weights(path)


@pytest.mark.parametrize(
    ("about", "said"),
    [
        ({"is_meta": True}, "'weight' is a shape without numbers"),
        ({"is_quantized": True}, "'weight' is quantized"),
        ({"layout": "torch.sparse_coo"}, "'weight' is sparse"),
        ({"layout": "torch.strided"}, "cannot be copied into this model"),
    ],
)
def test_tensors_that_no_model_takes(about: dict[str, Any], said: str) -> None:
    def load_state_dict(_: Any) -> None:
        raise RuntimeError("Error(s) in loading state_dict:\n\tone line for each")

    net = SimpleNamespace(state_dict=lambda: {"weight": SimpleNamespace(shape=(1,))}, load_state_dict=load_state_dict)
    with pytest.raises(ModelError, match=said) as caught:
        put_weights(net, {"weight": SimpleNamespace(shape=(1,), **about)}, "model.pth")
    assert str(caught.value).isprintable()
