"""The thread behind a synchronous client: it ends with its client, and no caller waits for it for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.client import Admin, Consumer, Producer
from odradek.client.network.errors import ClientClosedError
from odradek.client.network.loop_thread import LoopThread
from odradek.model.errors import OdradekError

SERVERS = "127.0.0.1:1"


def threads_named(name: str) -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == name}


@pytest.mark.parametrize(
    ("name", "new_client"),
    [("odradek-admin", Admin), ("odradek-consumer", Consumer), ("odradek-producer", Producer)],
)
def test_a_closed_client_leaves_no_thread(name: str, new_client: Callable[[str], Any]) -> None:
    before = threads_named(name)
    client = new_client(SERVERS)
    (thread,) = threads_named(name) - before
    client.close()
    client.close()
    assert not thread.is_alive()


def test_a_consumer_whose_close_fails_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threads_named("odradek-consumer")
    consumer = Consumer(SERVERS)

    async def refuse(*_: object, **__: object) -> None:
        raise OdradekError("the group does not answer")

    monkeypatch.setattr("odradek.client.consumer.core.ConsumerCore.finish", refuse)
    with pytest.raises(OdradekError, match="does not answer"):
        consumer.close()
    assert threads_named("odradek-consumer") == before


@pytest.mark.parametrize(
    ("name", "new_client"), [("odradek-consumer", Consumer), ("odradek-producer", Producer)]
)
def test_a_client_that_cannot_be_made_leaves_no_thread(name: str, new_client: Callable[..., Any]) -> None:
    before = threads_named(name)
    with pytest.raises((OdradekError, OSError)):
        new_client(
            SERVERS,
            security_protocol="SSL",
            ssl_truststore_location="/nowhere/ca.pem",
            ssl_truststore_type="PEM",
        )
    assert threads_named(name) == before


def test_who_waits_learns_that_the_client_was_closed_by_another_thread() -> None:
    loop = LoopThread("odradek-admin")
    is_waiting = threading.Event()

    async def wait_for_nothing() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as other:
        waiter = other.submit(loop.call, wait_for_nothing())
        is_waiting.wait(PATIENCE_S)
        loop.stop()
        with pytest.raises(ClientClosedError):
            waiter.result(10)
    with pytest.raises(ClientClosedError):
        loop.call(wait_for_nothing())
