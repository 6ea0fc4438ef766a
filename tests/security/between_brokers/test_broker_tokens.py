"""Brokers log in to each other by tokens that their issuer gives them (OAUTHBEARER, KIP-768)."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
from tests.scenarios.one_broker import Scene
from tests.security.conftest import Pems
from tests.security.test_in_a_broker import fresh
from tests.security.test_mechanisms import JWKS
from tests.security.test_token_endpoint import JAAS, SECRET, Clock, Issuer

from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.security.own_token import OwnToken
from odradek.config.loading import load_broker_config
from odradek.model.errors import ConfigError
from odradek.net.connection import Connection
from odradek.net.outgoing_security import LoginFailed
from odradek.protocol import decode_request_header
from odradek.protocol.messages.topics.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from odradek.security.authorizer import STANDARD_AUTHORIZER

FETCH: Final = 1
SECONDS: Final = 30
URL_KEY: Final = "sasl.oauthbearer.token.endpoint.url"


class BrokersIssuer(Issuer):
    """Its tokens are for the user `broker`, and say that they end a second earlier than they do."""

    lifetime_s = 60

    def answer(self) -> tuple[int, bytes]:
        if self.answers:
            return self.answers.pop(0)
        granted = fresh(self.lifetime_s, sub="broker")
        return 200, json.dumps({"access_token": granted, "expires_in": self.lifetime_s - 1}).encode()


@pytest.fixture
def issuer(pems: Pems, monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokersIssuer]:
    monkeypatch.setenv("SSL_CERT_FILE", pems.ca)
    server = BrokersIssuer(pems)
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield server
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def settings(keys: str, url: str) -> dict[str, str]:
    return {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "listener.name.brokers.sasl.enabled.mechanisms": "OAUTHBEARER",
        "listener.name.brokers.oauthbearer.sasl.jaas.config": JAAS,
        "sasl.oauthbearer.jwks.endpoint.url": keys,
        "sasl.oauthbearer.expected.audience": "kafka",
        URL_KEY: url,
        "odradek.sasl.oauthbearer.allowed.urls": url,
    }


class TwoBrokers:
    """`logins`: connections of brokers that ask for records, with their users."""

    def __init__(self, directory: Path, pems: Pems, issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
        self._directory = directory
        self._keys = f"file://{pems.write('jwks.json', json.dumps(JWKS).encode())}"
        self._issuer = issuer
        self._scenes: list[Scene] = []
        self.followers: dict[Connection, str] = {}
        handle = Dispatcher.handle

        def watched(dispatcher: Dispatcher, connection: Connection, frame: memoryview) -> Any:
            header, _ = decode_request_header(frame)
            if header.api_key == FETCH and connection.listener.name == "BROKERS":
                self.followers[connection] = connection.requester.principal
            return handle(dispatcher, connection, frame)

        monkeypatch.setattr(Dispatcher, "handle", watched)

    async def start(self) -> Scene:
        scene = Scene(self._directory / str(len(self._scenes)))
        self._scenes.append(scene)
        await scene.start(
            **settings(self._keys, self._issuer.url),
            **{
                "node.id": str(len(self._scenes)),
                "odradek.registry.dir": str(self._directory / "registry"),
                "authorizer.class.name": STANDARD_AUTHORIZER,
                "super.users": "User:ANONYMOUS;User:broker",
                "replica.lag.time.max.ms": "4000",
            },
        )
        return scene

    async def stop(self) -> None:
        for scene in reversed(self._scenes):
            await scene.stop()

    @property
    def isr(self) -> list[int]:
        controller: Any = self._scenes[0].broker
        topic = controller.context.image.topics.get("both")
        return [] if topic is None else sorted(topic.partitions[0].isr)


@pytest.fixture
async def brokers(
    tmp_path: Path,
    pems: Pems,
    issuer: BrokersIssuer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> AsyncIterator[TwoBrokers]:
    caplog.set_level(logging.INFO)
    made = TwoBrokers(tmp_path, pems, issuer, monkeypatch)
    try:
        yield made
    finally:
        await made.stop()


async def replicated(scene: Scene) -> Any:
    """A connection to broker 1, which leads `both`."""
    wire = await scene.connect()
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])
    wanted = CreatableTopic(name="both", num_partitions=-1, replication_factor=-1, assignments=[assignment])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=SECONDS * 1000)
    assert (await wire.ask(request, 7)).topics[0].error_code == 0
    return wire


@pytest.mark.check(31, 32)
async def test_sessions_of_brokers_end_with_their_tokens_and_are_renewed(
    brokers: TwoBrokers, issuer: BrokersIssuer, caught: Callable[[str], list[dict[str, Any]]]
) -> None:
    issuer.lifetime_s = 4
    wire = await replicated((await brokers.start(), await brokers.start())[0])
    written = 0
    async with asyncio.timeout(SECONDS):
        while len(brokers.followers) < 3:
            assert (await wire.produce("both", [b"x"])).error_code == 0  # acknowledged by both
            written += 1
            await asyncio.sleep(0.05)
    assert set(brokers.followers.values()) == {"User:broker"}
    assert brokers.isr == [1, 2]
    assert len(await wire.values("both")) == written
    assert len(issuer.requests) >= 2
    assert set(issuer.requests) == {(f"etl:{SECRET}", "grant_type=client_credentials&scope=kafka%3Aread")}
    assert not caught("own_token_not_fetched")
    assert not caught("isr_proposed")


@pytest.mark.check(31)
async def test_an_issuer_that_fails_is_named_once_and_asked_again(
    brokers: TwoBrokers, issuer: BrokersIssuer, caught: Callable[[str], list[dict[str, Any]]]
) -> None:
    first = await brokers.start()
    issuer.answers += [(503, b"")] * 4
    await brokers.start()
    wire = await replicated(first)
    assert (await wire.produce("both", [b"x"])).error_code == 0
    (failure,) = caught("own_token_not_fetched")
    assert failure["listener"] == "BROKERS"
    assert failure["reason"] == "https://127.0.0.1/token gives no token now: HTTP 503"
    assert len(caught("own_token_fetched_again")) == 1
    assert len(issuer.requests) == 5


class Threads:
    async def run(self, work: Callable[..., Any], *arguments: object) -> Any:
        return await asyncio.to_thread(work, *arguments)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def own(pems: Pems, issuer: BrokersIssuer, clock: Clock) -> OwnToken:
    keys = f"file://{pems.write('jwks.json', json.dumps(JWKS).encode())}"
    config, warnings = load_broker_config(settings(keys, issuer.url))
    assert not [warning for warning in warnings if "oauthbearer" in warning]
    runtime: Any = SimpleNamespace(clock=clock, offload=Threads())
    return OwnToken("BROKERS", config.security["BROKERS"], runtime)


async def test_logins_at_the_same_time_share_a_request(own: OwnToken, issuer: BrokersIssuer) -> None:
    await asyncio.gather(*(own.renew() for _ in range(10)))
    assert own.token()
    assert len(issuer.requests) == 1


async def test_a_token_is_renewed_in_time_and_counts_to_its_end_if_it_cannot_be(
    own: OwnToken, issuer: BrokersIssuer, clock: Clock
) -> None:
    issuer.lifetime_s = 101
    await own.renew()
    clock.now_s += 79
    await own.renew()
    assert len(issuer.requests) == 1
    clock.now_s += 2
    before = own.token()
    issuer.answers += [(500, b"")] * 2
    await own.renew()
    assert own.token() == before
    assert len(issuer.requests) == 2
    clock.now_s += 20
    with pytest.raises(LoginFailed, match="HTTP 500"):
        await own.renew()
    clock.now_s += 1
    await own.renew()
    assert len(issuer.requests) == 4


async def test_pauses_after_failures_double_up_to_a_limit(
    own: OwnToken, issuer: BrokersIssuer, clock: Clock
) -> None:
    issuer.answers += [(401, b'{"error": "invalid_client"}')] * 20
    for pause_ms in (100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000):
        asked = len(issuer.requests)
        for waited_ms in (0, pause_ms - 1):
            clock.now_s += waited_ms / 1000
            with pytest.raises(LoginFailed, match="HTTP 401 invalid_client"):
                await own.renew()
            assert len(issuer.requests) == asked + 1
        clock.now_s += 0.0011


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({URL_KEY: None}, f"OAUTHBEARER needs {URL_KEY}"),
        ({"listener.name.brokers.oauthbearer.sasl.jaas.config": None}, "needs clientId and clientSecret"),
    ],
)
def test_settings_that_give_no_token_are_refused(changes: dict[str, str | None], words: str) -> None:
    values = {**settings("file:///keys", "https://issuer/token"), **changes}
    with pytest.raises(ConfigError, match=words):
        load_broker_config({key: value for key, value in values.items() if value is not None})


@pytest.mark.check(30)
@pytest.mark.parametrize(
    ("url", "allowed", "words"),
    [
        ("https://issuer/token", "https://other/token", "allowed.urls"),
        ("http://issuer/token", "http://issuer/token", "expected https://"),
        ("file:///etc/passwd", "file:///etc/passwd", "expected https://"),
    ],
)
def test_a_secret_is_sent_to_allowed_urls_only_and_by_https(url: str, allowed: str, words: str) -> None:
    values = settings("file:///keys", url) | {"odradek.sasl.oauthbearer.allowed.urls": allowed}
    config, _ = load_broker_config(values)
    with pytest.raises(ConfigError, match=words):
        OwnToken("BROKERS", config.security["BROKERS"], SimpleNamespace())  # type: ignore[arg-type]
