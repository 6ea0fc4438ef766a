"""Asking metrics listeners for pages: real ones, and peers that send slowly, too much, or something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from odradek.model.errors import ConfigError
from odradek.net.listener_pages import ListenerAccess, ListenerAddress, ListenerPageError, page
from odradek.net.scrape_server import HttpPage, PageRequest, ScrapeServer

OPEN = ListenerAccess()
LARGE = b"x" * 3_000_000


@asynccontextmanager
async def peer(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[ListenerAddress]:
    """A server that answers a request as `talk` does, and then closes."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            await talk(reader, writer)
        except ConnectionError:
            pass  # the caller has enough
        finally:
            writer.transport.abort() if writer.transport.is_closing() else writer.close()

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    try:
        yield ListenerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()


def sending(*parts: bytes, pause_s: float = 0.0) -> Callable[..., Awaitable[None]]:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_s)

    return talk


async def test_a_page_of_our_own_server_comes_whole() -> None:
    asked: list[PageRequest] = []

    async def page_for(request: PageRequest) -> HttpPage:
        asked.append(request)
        return HttpPage(body=LARGE)

    server = ScrapeServer(page_for)
    address = ListenerAddress("127.0.0.1", server.open("", 0))
    server.start()
    try:
        assert await page(address, "/metrics", OPEN) == LARGE
    finally:
        await asyncio.to_thread(server.close)
    assert (asked[0].path, "authorization" in asked[0].headers) == ("/metrics", False)


async def test_the_token_is_the_first_line_of_a_file_that_is_read_for_each_page(tmp_path: Path) -> None:
    shown: list[str] = []

    async def page_for(request: PageRequest) -> HttpPage:
        shown.append(request.headers.get("authorization", ""))
        return HttpPage(body=b"[]")

    token = tmp_path / "token"
    access = ListenerAccess(token_file=str(token))
    server = ScrapeServer(page_for)
    address = ListenerAddress("127.0.0.1", server.open("", 0))
    server.start()
    try:
        for text in ("first-token-of-ours\nsecond\n", "renewed-token\n"):
            token.write_text(text)
            await page(address, "/slow", access)
    finally:
        await asyncio.to_thread(server.close)
    assert shown == ["Bearer first-token-of-ours", "Bearer renewed-token"]
    token.write_text("a\x0bInjected: header")
    with pytest.raises(ListenerPageError, match="no header may have"):
        access.headers()
    token.write_text("")
    with pytest.raises(ListenerPageError, match="no token in its first line"):
        access.headers()
    token.unlink()
    with pytest.raises(ListenerPageError, match="cannot be read"):
        access.headers()


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ((b"+OK mail server ready\r\n\r\n",), "does not speak HTTP"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",), "ended after 5 of 10 bytes"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n",), "more than 1000"),
        ((b"HTTP/1.1 200 OK\r\n\r\n", b"x" * 5000), "more than 1000 bytes"),
        ((b"HTTP/1.1 503 Busy\r\n\r\nnot \x1b[31mready\n",), r"answers 503: not \\x1b\[31mready"),
        ((b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000,), "no metrics listener answers"),
        ((b"HTTP/1.1 200 OK\r\n",), "no metrics listener answers"),
        ((), "no metrics listener answers"),
    ],
)
async def test_what_is_no_page_is_one_clear_line(parts: tuple[bytes, ...], reason: str) -> None:
    async with peer(sending(*parts)) as address:
        with pytest.raises(ListenerPageError, match=reason) as refused:
            await page(address, "/slow", OPEN, bytes_max=1000)
    assert str(address) in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_a_page_without_a_length_ends_with_its_connection() -> None:
    async with peer(sending(b"HTTP/1.0 200 OK\r\n\r\n[1", b",2]")) as address:
        assert await page(address, "/slow", OPEN) == b"[1,2]"


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n"])
async def test_a_peer_that_sends_for_ever_costs_no_more_than_the_time_limit(head: bytes) -> None:
    async with peer(sending(head, *[b"x"] * 10_000, pause_s=0.05)) as address:
        with pytest.raises(ListenerPageError, match=r"no whole page within 0\.3 s"):
            await page(address, "/metrics", OPEN, timeout_s=0.3)


async def test_nothing_listens() -> None:
    async with peer(sending()) as address:
        pass
    with pytest.raises(ListenerPageError, match=r"start the broker with --set metrics\.listeners="):
        await page(address, "/metrics", OPEN)


def test_addresses_are_written_as_they_are_parsed() -> None:
    assert str(ListenerAddress.of("[::1]:9464")) == "[::1]:9464"
    assert str(ListenerAddress.of(":9464")) == "127.0.0.1:9464"
    with pytest.raises(ConfigError):
        ListenerAddress.of("nonsense")


def test_authorities_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ListenerPageError, match="cannot be read"):
        ListenerAccess(ca=str(tmp_path / "absent.pem")).context()
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    with pytest.raises(ListenerPageError, match="cannot be read"):
        ListenerAccess(ca=str(empty)).context()
