"""What has to be in place while a session is made that is to be planned?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import onnxruntime

from onnxmem._native import arena as native
from onnxmem.session.modes import find_mode
from onnxmem.session.options import applied, entries
from onnxmem.session.planned import bridge
from onnxmem.session.planned.pairs import Sharer
from onnxmem.session.planned.source import Source

if TYPE_CHECKING:  # it is given
    from onnxmem.session.planned.kept import KeptPlans
    from onnxmem.session.planned.planner import Planner

_ENVIRONMENT = "session.use_env_allocators"


@contextmanager
def made_for_plans(
    options: Any, planner: Planner | None = None, *, device: native.Device | None = None
) -> Iterator[None]:
    """Sessions made with these options in this block take their memory from us; RuntimeUnsupported, if they cannot.

    On a `device`, the memory there. The one that is made for `planner` is profiled as long as it has not run, if the
    planner wants that.
    """
    with bridge.enlisted(planner.device if planner else device), applied(options, find_mode("planned").options, {}):
        # An entry cannot be removed, and overwriting it is logged as a warning. It may stay: a stock session made with
        # it finds no allocator in the environment and takes its own.
        if entries(options, [_ENVIRONMENT]).get(_ENVIRONMENT) != "1":
            options.add_session_config_entry(_ENVIRONMENT, "1")
        if planner is None or not planner.wants_profile:
            yield
            return
        from onnxmem.session.planned.profile import profiled  # noqa: PLC0415

        with profiled(options) as profile:
            yield
        planner.take_profile(profile())


def sharer_of(options: Any, source: Source | None) -> Sharer | None:
    """What finds the buffers that may share places; None if none may, or if nobody can say which is which."""
    # Whoever profiles for himself has the profile that would tell.
    if source is None or not source.own_operators or options.enable_profiling:
        return None
    order = f"{options.graph_optimization_level.name} {getattr(options, 'execution_order', '')}"
    return Sharer(threads=options.intra_op_num_threads, source=source, order=order)


def kept_plans(
    options: Any, content: str, config: Mapping[str, str], source: Source | None, *, sharing: bool
) -> KeptPlans | None:
    """The plans that earlier processes left of a model with this content; None if there is nothing to know it by."""
    if not content or source is None:
        return None
    from onnxmem.session.planned.identity import name_of  # noqa: PLC0415
    from onnxmem.session.planned.kept import KeptPlans  # noqa: PLC0415

    every = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    steady = not source.blocked or options.graph_optimization_level != every
    return KeptPlans(f"{name_of(content, options, config)} {sharing}", steady=steady)
