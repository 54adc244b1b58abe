"""Who may look: only requests that know the token, that name this server as it is known, and that come from its pages.

Whoever looks can have models run as the user who started it. Others on the same machine can connect to it as well, so
that being local is not enough. And a page elsewhere could point a name of its own at this machine, or send requests
here, through the browser of somebody who is allowed to look.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """ASGI middleware around the whole server, its websocket and its uploads included.

    `once` is a token for one request: a browser is started with it, and all users see what programs are started with.
    If `local`, the server is asked for by a name of this machine only. Cookies are those of all ports, hence `port`.
    """

    def __init__(
        self,
        app: Callable[[Scope, Receive, Send], Awaitable[None]],
        *,
        token: str,
        once: str = "",
        local: bool = False,
        port: int = 0,
    ) -> None:
        self.app, self.token, self.once, self.local, self.cookie = app, token, once, local, f"onnxmem-token-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass; answer the rest in a sentence."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        host = headers.get("host", "")
        if self.local and host.rpartition(":")[0] not in LOCAL:
            await _refuse(scope, send, "This dashboard answers on localhost only.")
            return
        # Browsers say which page has sent a request, unless that is an address that was typed or clicked.
        if headers.get("origin", f"http://{host}").partition("://")[2] != host:
            await _refuse(scope, send, "This dashboard answers its own pages only.")
            return
        given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
        if scope["type"] == "http" and self._is_token(given):
            # From here on the cookie says it: the token is not to stay in the address, nor in the history.
            cookie = f"{self.cookie}={self.token}; Path=/; HttpOnly; SameSite=Strict"
            await _answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
            return
        if not self._knows(headers):
            await _refuse(scope, send, "Open the address that 'onnxmem app' printed: it ends in a token.")
            return
        await self.app(scope, receive, send)

    def _knows(self, headers: dict[str, str]) -> bool:
        # Not by http.cookies: of some headers that takes the square of their length, and this is anyone's.
        pairs = (pair.strip().partition("=") for pair in headers.get("cookie", "").split(";"))
        return any(name == self.cookie and _equal(value, self.token) for name, _, value in pairs)

    def _is_token(self, given: str) -> bool:
        if self.once and _equal(given, self.once):
            self.once = ""
            return True
        return _equal(given, self.token)


def _equal(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogatepass"), token.encode())


async def _refuse(scope: Scope, send: Send, sentence: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": sentence})
    else:
        await _answer(send, 403, sentence.encode(), [(b"content-type", b"text/plain; charset=utf-8")])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
