"""Who may look at the dashboard, and how others are told that they may not."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from onnxmem.app.guard import Guard

COOKIE = "onnxmem-token-8501=secret"


def guard(**how: Any) -> Guard:
    async def inside(scope: Any, receive: Any, send: Any) -> None:
        pass

    return Guard(inside, token="secret", port=8501, **how)


def ask(asked: Guard, kind: str = "http", query: str = "", **headers: str) -> list[dict[str, Any]]:
    """What a request is answered; an empty list if it is passed on."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads it")

    scope = {
        "type": kind,
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    asyncio.run(asked(scope, receive, send))
    return sent


@pytest.mark.parametrize("host", ["localhost:8501", "127.0.0.1:8501", "[::1]:8501"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_this_machine_is_let_in_by_its_own_names(host: str, kind: str) -> None:
    assert ask(guard(local=True), kind, host=host, cookie=COOKIE) == []


@pytest.mark.parametrize("host", ["evil.example:8501", "localhost.evil.example:8501", "", "192.168.0.7:8501"])
def test_other_names_are_not(host: str) -> None:
    assert ask(guard(local=True), host=host, cookie=COOKIE)[0]["status"] == 403
    assert ask(guard(local=True), "websocket", host=host, cookie=COOKIE)[0]["type"] == "websocket.close"


@pytest.mark.parametrize("local", [True, False])
def test_others_on_this_machine_are_not_let_in_without_the_token(local: bool) -> None:
    asked, host = guard(local=local), "localhost:8501"
    assert ask(asked, host=host)[0]["status"] == 403
    assert ask(asked, "websocket", host=host)[0]["type"] == "websocket.close"
    for cookie in ("onnxmem-token-8501=wrong", "onnxmem-token-8502=secret", "onnxmem-token-8501=", "a[]=1; ;;=", "é"):
        assert ask(asked, host=host, cookie=cookie)[0]["status"] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://localhost:9999", "https://localhost"])
@pytest.mark.parametrize("kind", ["http", "websocket"])
def test_pages_of_others_get_no_answer(origin: str, kind: str) -> None:
    """A browser sends the cookie along with what a page at another port of this machine asks for."""
    assert ask(guard(local=True), kind, host="localhost:8501", cookie=COOKIE, origin="http://localhost:8501") == []
    assert ask(guard(local=True), kind, host="localhost:8501", cookie=COOKIE, origin=origin) != []
    assert ask(guard(), kind, host="box:8501", cookie=COOKIE, origin=origin) != []


def test_a_token_is_asked_for_once() -> None:
    assert ask(guard(), host="box:8501")[0]["status"] == 403
    assert ask(guard(), host="box:8501", query="token=wrong")[0]["status"] == 403
    welcome = ask(guard(), host="box:8501", query="token=secret")[0]
    headers = dict(welcome["headers"])
    assert welcome["status"] == 303 and headers[b"location"] == b"/"
    cookie = headers[b"set-cookie"].decode()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    given = cookie.split(";", maxsplit=1)[0]
    for kind in ("http", "websocket"):
        assert ask(guard(), kind, host="box:8501", cookie=given) == []
        assert ask(guard(), kind, host="box:8501", cookie="onnxmem-token-8501=wrong") != []
    # A websocket cannot be sent elsewhere: it needs the cookie.
    assert ask(guard(), "websocket", "token=secret", host="box:8501")[0]["code"] == 1008


def test_what_a_browser_is_started_with_is_of_no_use_to_whoever_reads_it_later() -> None:
    asked = guard(once="brief", local=True)
    assert ask(asked, host="localhost:8501", query="token=brief")[0]["status"] == 303
    assert ask(asked, host="localhost:8501", query="token=brief")[0]["status"] == 403
    assert ask(asked, host="localhost:8501", query="token=")[0]["status"] == 403


def test_the_cookie_stands_among_those_of_other_servers() -> None:
    for cookie in (f"a=1; {COOKIE}", f"{COOKIE};b", f'a="x;{COOKIE}', f"onnxmem-token-8501=old; {COOKIE}"):
        assert ask(guard(), host="box:8501", cookie=cookie) == []


def test_no_cookie_takes_long_to_read() -> None:
    began = time.process_time()
    for cookie in ('a="' + "\\" * 60_000 + '"', "a=1;" * 16_000, "=" * 64_000):
        assert ask(guard(), host="box:8501", cookie=cookie)[0]["status"] == 403
    assert time.process_time() - began < 1


def test_what_is_neither_a_page_nor_a_socket_passes() -> None:
    assert ask(guard(), "lifespan") == []
