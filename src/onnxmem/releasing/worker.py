"""The measured process that lets go of a model step by step: `python -P -m onnxmem.releasing.worker`.

Like the worker it is made from, but instead of releasing at once it climbs a ladder, and the parent looks at its memory
after each rung. The inputs stay to the end: they are the caller's, and no rung shall seem to have freed them.
"""

from __future__ import annotations

from typing import Any

from onnxmem.measurement.worker import Worker, main
from onnxmem.releasing.rungs import RUNGS


class LadderWorker(Worker):
    """One life: start, import, inputs, load, first run, steady runs, and then each rung as a phase of its own."""

    def import_runtime(self) -> dict[str, Any]:
        facts = super().import_runtime()
        # Imported here, so that it is part of what was there before the model, and not of what is left after it.
        from onnxmem.releasing import close  # noqa: PLC0415
        from onnxmem.session import trim  # noqa: PLC0415

        self.close, self.trim = close.close, trim.trim
        return facts

    def let_go(self) -> None:
        steps = (self.drop, self.collect, self.shrink, self.destroy, self.give_back, self.unmap)
        for rung, step in zip(RUNGS, steps, strict=True):
            self.phase(rung, step)

    def drop(self) -> dict[str, Any]:
        """Forget the outputs and one of two names of the session: what `del session` does while others hold it."""
        session = self.session
        self.outputs = None
        del session
        return {"clear_cache": hasattr(self.session, "clear_cache")}

    def collect(self) -> None:
        self.gc.collect()

    def shrink(self) -> dict[str, Any]:
        options = self.ort.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        try:
            self.session.run(None, self.feeds, options)
        except Exception as error:  # a session without an arena refuses
            return {"shrinkage": " ".join(str(error).split())}
        return {"shrinkage": None}

    def destroy(self) -> dict[str, Any]:
        session, self.session = self.session, None
        return {"held_by": list(self.close(session))}

    def give_back(self) -> dict[str, Any]:
        trimmed = self.trim()
        return {"trim": trimmed if isinstance(trimmed, bool) else trimmed.reason}

    def unmap(self) -> None:
        """Drop whatever else was made for the model, such as maps of its weights; nothing, in most modes."""
        keep = ("task", "out", "feeds", "gc", "sha256", "numpy", "ort", "new_session", "close", "trim")
        for name in [name for name in vars(self) if name not in keep]:
            delattr(self, name)
        self.gc.collect()


if __name__ == "__main__":
    main(LadderWorker)
