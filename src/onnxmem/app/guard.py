"""Who may look: only requests that name this server as it is known, and that know its token where it has one.

A page elsewhere could otherwise point a name of its own at this machine, and read what is here through the browser of
somebody who is allowed to.
"""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import parse_qs

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
_COOKIE = "onnxmem-token"
LOCAL = ("localhost", "127.0.0.1", "[::1]")


class Guard:
    """ASGI middleware around the whole server, its websocket and its uploads included."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]], *, token: str = "") -> None:
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what may pass; answer the rest in a sentence."""
        if scope["type"] not in ("http", "websocket"):
            await self.app(scope, receive, send)
            return
        headers = {key.decode("latin-1").lower(): value.decode("latin-1") for key, value in scope["headers"]}
        # With a token, who has it may come under any name; without one, only this machine by its own names.
        if not self.token and headers.get("host", "").rpartition(":")[0] not in LOCAL:
            await _refuse(scope, send, "This dashboard answers on localhost only.")
            return
        if self.token and not self._knows(headers):
            given = parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", [""])[0]
            if scope["type"] == "http" and self._is_token(given):
                # From here on the cookie says it: the token is not to stay in the address, nor in the history.
                cookie = f"{_COOKIE}={self.token}; Path=/; HttpOnly; SameSite=Strict"
                await _answer(send, 303, b"", [(b"location", b"/"), (b"set-cookie", cookie.encode())])
                return
            await _refuse(scope, send, "Open the address that 'onnxmem app' printed: it ends in a token.")
            return
        await self.app(scope, receive, send)

    def _knows(self, headers: dict[str, str]) -> bool:
        cookies: SimpleCookie = SimpleCookie(headers.get("cookie", ""))
        return _COOKIE in cookies and self._is_token(cookies[_COOKIE].value)

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


async def _refuse(scope: Scope, send: Send, sentence: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": sentence})
    else:
        await _answer(send, 403, sentence.encode(), [(b"content-type", b"text/plain; charset=utf-8")])


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
