"""The measured process when the model is PyTorch's: the same phases, another runtime."""

from __future__ import annotations

from typing import Any

from onnxmem.measurement import worker
from onnxmem.measurement.protocol import Imported


class TorchWorker(worker.Worker):
    """One trial of a PyTorch model."""

    def import_runtime(self) -> None:
        """PyTorch, and the module that a factory is in: frameworks count here, the model under `load`."""
        import gc  # noqa: PLC0415
        import hashlib  # noqa: PLC0415

        import numpy  # noqa: PLC0415

        from onnxmem.torch import model as torch_model  # noqa: PLC0415

        self.gc, self.sha256, self.numpy, self.library = gc, hashlib.sha256, numpy, torch_model
        self.torch = torch_model.import_torch()
        self.source = torch_model.TorchSource.from_document(self.task.source or {})
        is_factory = self.source.form == torch_model.FACTORY
        self.factory = torch_model.import_factory(self.source) if is_factory else None
        if self.task.threads is not None:
            self.torch.set_num_threads(self.task.threads)

    def imported(self) -> Imported:
        return Imported("torch", self.torch.__version__)

    def load(self) -> None:
        self.session: Any = self.library.load_module(self.source, self.factory)
        self.where = "cpu"
        if self.task.device is not None:
            self.where = f"cuda:{self.task.device}"
            self.session = self.session.to(self.where)

    def infer(self) -> Any:
        # On the CPU arrays and tensors share their memory: nothing is copied on the way in or out.
        tensors = {name: self.torch.from_numpy(array).to(self.where) for name, array in self.feeds.items()}
        places, names = self.library.call_with(self.session, tensors)
        with self.torch.inference_mode():
            returned = self.session(*places, **names)
        return [(name, self.library.as_array(tensor)) for name, tensor in self.library.flat_outputs(returned)]

    def named_outputs(self) -> list[tuple[str, str, Any]]:
        return [(name, str(value.dtype), value) for name, value in self.outputs or ()]


def main() -> None:
    """Do one task for the parent."""
    worker.main(TorchWorker)
