"""Who may look at the dashboard, and how others are told that they may not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from onnxmem.app.guard import Guard


def ask(token: str = "", kind: str = "http", query: str = "", **headers: str) -> list[dict[str, Any]]:
    """What a request is answered; an empty list if it is passed on."""
    sent: list[dict[str, Any]] = []

    async def inside(scope: Any, receive: Any, send: Any) -> None:
        pass

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads it")

    scope = {
        "type": kind,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(Guard(inside, token=token)(scope, receive, send))
    return sent


@pytest.mark.parametrize("host", ["localhost:8501", "127.0.0.1:8501", "[::1]:8501"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_this_machine_is_let_in_by_its_own_names(host: str, kind: str) -> None:
    assert ask(kind=kind, host=host) == []


@pytest.mark.parametrize("host", ["evil.example:8501", "localhost.evil.example:8501", "", "192.168.0.7:8501"])
def test_other_names_are_not(host: str) -> None:
    assert ask(host=host)[0]["status"] == 403
    assert ask(kind="websocket", host=host)[0]["type"] == "websocket.close"


def test_a_token_is_asked_for_once() -> None:
    assert ask("secret", host="box:8501")[0]["status"] == 403
    assert ask("secret", host="box:8501", query="token=wrong")[0]["status"] == 403
    welcome = ask("secret", host="box:8501", query="token=secret")[0]
    headers = dict(welcome["headers"])
    assert welcome["status"] == 303 and headers[b"location"] == b"/"
    cookie = headers[b"set-cookie"].decode()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    given = cookie.split(";", maxsplit=1)[0]
    for kind in ("http", "websocket"):
        assert ask("secret", kind, host="box:8501", cookie=given) == []
        assert ask("secret", kind, host="box:8501", cookie="onnxmem-token=wrong") != []
    # A websocket cannot be sent elsewhere: it needs the cookie.
    assert ask("secret", "websocket", "token=secret", host="box:8501")[0]["code"] == 1008


def test_what_is_neither_a_page_nor_a_socket_passes() -> None:
    assert ask("secret", "lifespan") == []
