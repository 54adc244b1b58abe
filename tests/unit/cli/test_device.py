"""No verb takes --device for nothing: it runs there, or says in one sentence why not."""

from __future__ import annotations

import sys

import pytest

from onnxmem import cli


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        *(
            (f"{verb} x.onnx", 3, "this ONNX Runtime is for the CPU")
            for verb in ("estimate", "measure", "trace", "release", "share")
        ),
        ("sweep x.onnx", 2, "cannot read 'x.onnx': there is no such file"),
        ("compare x.onnx y.onnx", 2, "cannot read 'x.onnx', 'y.onnx'"),
        ("demo", 3, "this ONNX Runtime is for the CPU"),
        *((f"{verb} x.onnx", 2, "No such option") for verb in ("plan", "fit", "explain", "pack", "check")),
    ],
)
def test_without_a_gpu(
    arguments: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "end_on_signals", lambda: None)  # which is for processes of its own
    monkeypatch.setattr(sys, "argv", ["onnxmem", *arguments.split(), "--device", "cuda"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert said in capsys.readouterr().err
