"""The server of the dashboard: where it listens, who may look, and how it ends."""

from __future__ import annotations

import os
import secrets
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from onnxmem.app.settings import Settings, configure
from onnxmem.errors import UsageError, check_extra
from onnxmem.report.charts.theme import SIZES
from onnxmem.session.trim import keep_little

FIRST_PORT = 8501
_TRIED = 20
LOCALHOST = "localhost"
_OPTIONS = {
    "browser.gatherUsageStats": False,
    "client.toolbarMode": "minimal",
    "client.showErrorDetails": "none",
    "global.developmentMode": False,
    "runner.fastReruns": True,
    "server.fileWatcherType": "none",
    "server.headless": True,
    "theme.light.primaryColor": SIZES[3],
    "theme.dark.primaryColor": SIZES[1],
}


def serve(
    settings: Settings,
    *,
    port: int | None = None,
    address: str = LOCALHOST,
    on_ready: Callable[[str, str], None] = lambda url, once: None,
) -> None:
    """Serve the dashboard until it is interrupted; `on_ready` is told its address, and one that can be opened once.

    Only those who know a token may look, which is part of the address.
    """
    check_extra("app")
    keep_little()
    listening = _listen(address, port)
    local = address in (LOCALHOST, "127.0.0.1", "::1")
    token, once = secrets.token_urlsafe(24), secrets.token_urlsafe(24)
    number = listening.getsockname()[1]
    name = LOCALHOST if local else socket.gethostname() if address in ("", "0.0.0.0", "::") else address
    url = f"http://{name}:{number}/?token="
    configure(settings)
    server = _server(settings, token=token, once=once, local=local, port=number)
    ready = threading.Timer(0.05, _tell_when_ready, [server, lambda: on_ready(url + token, url + once)])
    ready.daemon = True
    ready.start()
    from onnxmem.app.workspace import close_all  # noqa: PLC0415

    try:
        server.run(sockets=[listening])
    finally:
        close_all()


def _server(settings: Settings, **guarded: Any) -> Any:
    import uvicorn  # noqa: PLC0415
    from starlette.middleware import Middleware  # noqa: PLC0415
    from streamlit import config  # noqa: PLC0415
    from streamlit.starlette import App  # noqa: PLC0415

    # Before anybody can ask for the page: loaded by two threads at once, its modules could be found half loaded.
    import onnxmem.app.dashboard  # noqa: F401, PLC0415
    from onnxmem.app.guard import Guard  # noqa: PLC0415

    class Server(uvicorn.Server):
        """Pressed twice, Ctrl-C ends it as once does; it would break off what is ending, with a traceback of that."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if not self.should_exit:
                super().handle_exit(sig, frame)

    megabytes = max(1, -(-settings.upload_limit // 2**20))
    for name, value in {**_OPTIONS, "server.port": guarded["port"], "server.maxUploadSize": megabytes}.items():
        config.set_option(name, value)
    page = Path(__file__).with_name("page.py")
    app = App(page, middleware=[Middleware(Guard, **guarded)], on_script_error=_say)
    return Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1, ws_max_size=2**20))


def _say(error: Exception) -> bool:
    """A mistake of ours or of a result is a sentence on the page; it and its place are on stderr as well."""
    import streamlit as st  # noqa: PLC0415

    from onnxmem.errors import OnnxmemError, readable  # noqa: PLC0415
    from onnxmem.report.render.to_markdown import escape  # noqa: PLC0415

    own = isinstance(error, OnnxmemError)
    what = readable(str(error) if own else f"unexpected {type(error).__name__}: {error}")
    st.error(escape(f"{what}."))
    place = traceback.extract_tb(error.__traceback__)[-1]
    print(f"onnxmem: {what} ({place.filename}:{place.lineno})", file=sys.stderr)  # noqa: T201
    return True


def _tell_when_ready(server: Any, tell: Callable[[], None]) -> None:
    while not server.started and not server.should_exit:
        threading.Event().wait(0.02)
    if server.started:
        tell()


def _listen(address: str, port: int | None) -> socket.socket:
    """A socket at this port, or at the first that is free."""
    tried = range(FIRST_PORT, FIRST_PORT + _TRIED) if port is None else (port,)
    for number in tried:
        try:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            return socket.create_server((address, number), family=family)
        except OverflowError as error:
            raise UsageError(f"there is no port {number}", hint="ports are numbers up to 65535") from error
        except OSError as error:
            # Python adds a sentence of its own to that of the system.
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    which = f"port {port}" if port is not None else f"any port from {tried[0]} to {tried[-1]}"
    raise UsageError(f"cannot listen at {which} of '{address}': {reason}", hint="choose another with --port N")
