"""The measured process that releases a model step by step.

Like the worker it is made from, but instead of releasing all at once it takes the steps of a ladder, and the parent
looks at its memory after each. The inputs stay to the end: they are the caller's, and no step shall seem to have freed
them.
"""

from __future__ import annotations

from onnxmem.measurement import worker
from onnxmem.measurement.protocol import Released
from onnxmem.releasing.rungs import RUNGS


class LadderWorker(worker.Worker):
    """One trial: start, import, inputs, load, first run, steady runs, and then each step as a phase of its own."""

    def import_runtime(self) -> None:
        super().import_runtime()
        # Imported here, so that it is part of what was there before the model, and not of what is left after it.
        from onnxmem.releasing import close  # noqa: PLC0415
        from onnxmem.session import trim  # noqa: PLC0415

        self.close, self.trim = close.close, trim.trim

    def release(self) -> None:
        self.released = Released(False, None, (), False)
        steps = (self.drop, self.collect, self.shrink, self.destroy, self.trim_allocator, self.unmap)
        for rung, step in zip(RUNGS, steps, strict=True):
            self.phase(rung, step)

    def drop(self) -> None:
        """Forget the outputs and one of two names of the session: what `del session` does while others hold it."""
        session = self.session
        self.outputs = None
        del session
        self.released = self.released._replace(clear_cache=hasattr(self.session, "clear_cache"))

    def collect(self) -> None:
        self.gc.collect()

    def shrink(self) -> None:
        options = self.ort.RunOptions()
        where = "cpu:0" if self.task.device is None else f"gpu:{self.task.device}"
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", where)
        try:
            self.session.run(None, self.feeds, options)
        except Exception as error:  # a session without an arena refuses
            self.released = self.released._replace(shrinkage=" ".join(str(error).split()))

    def destroy(self) -> None:
        session, self.session = self.session, None
        self.released = self.released._replace(held_by=list(self.close(session)))

    def trim_allocator(self) -> None:
        trimmed = self.trim()
        self.released = self.released._replace(trim=trimmed if isinstance(trimmed, bool) else trimmed.reason)
        self.send(self.released)

    def unmap(self) -> None:
        """Drop whatever else was made for the model, such as maps of its weights; nothing, in most modes."""
        keep = ("task", "out", "feeds", "gc", "sha256", "numpy", "ort", "new_session", "close", "trim")
        for name in [name for name in vars(self) if name not in keep]:
            delattr(self, name)
        self.gc.collect()


def main() -> None:
    """Do one task for the parent."""
    worker.main(LadderWorker)
