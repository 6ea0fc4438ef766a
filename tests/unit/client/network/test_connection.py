"""Connections: pipelining, versions, deadlines, and peers that are not Kafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from odradek.client.network.api_versions import PeerVersions, greeting_retry
from odradek.client.network.backoff import Backoff
from odradek.client.network.connection import BrokerConnection
from odradek.client.network.errors import BrokerUnreachableError, TimedOutError, WrongPeerError
from odradek.client.network.requests import PendingRequest, RequestQueue
from odradek.client.network.throttled import MUTE_S_MAX, ThrottleState
from odradek.client.network.wrong_peer import describe_peer
from odradek.client.settings.address import Address
from odradek.client.settings.settings import ClientSettings
from odradek.model.errors import ErrorCode, KafkaError
from odradek.protocol import VersionRange, api_by_name, encode, encode_response
from odradek.protocol.messages.metadata.api_versions import ApiVersion, ApiVersionsResponse
from odradek.protocol.messages.metadata.metadata import MetadataRequest
from odradek.runtime.ports import Clock
from odradek.runtime.real_clock import SystemClock

Within = Callable[[Awaitable[Any]], Awaitable[Any]]
METADATA = api_by_name("Metadata")


def settings(**given: Any) -> ClientSettings:
    return ClientSettings.of("127.0.0.1:1", given)


@asynccontextmanager
async def opened(port: int, *, clock: Clock | None = None, **given: Any) -> AsyncIterator[BrokerConnection]:
    address = Address("127.0.0.1", port)
    connection = await BrokerConnection.open(address, settings(**given), clock or SystemClock())
    try:
        yield connection
    finally:
        connection.close()
        await asyncio.sleep(0)


@asynccontextmanager
async def stranger(
    talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[int]:
    """Something else that listens."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


# -- without I/O


def pending(number: int, deadline: float = 10.0) -> PendingRequest:
    return PendingRequest(number, METADATA, 0, deadline, None)  # type: ignore[arg-type]


def test_answers_belong_to_requests_in_their_order() -> None:
    queue = RequestQueue()
    queue.sent(pending(queue.next_id()))
    queue.sent(pending(queue.next_id()))
    assert queue.answered((1).to_bytes(4, "big")).correlation_id == 1
    with pytest.raises(KafkaError, match="an answer to request 7 came, the one awaited is 2"):
        queue.answered((7).to_bytes(4, "big"))


def test_an_answer_no_one_asked_for_is_an_error() -> None:
    with pytest.raises(KafkaError, match="awaited is none"):
        RequestQueue().answered(bytes(4))


def test_correlation_ids_wrap_and_stay_positive() -> None:
    queue = RequestQueue()
    queue.last_id = 2**31 - 2
    assert [queue.next_id(), queue.next_id()] == [2**31 - 1, 1]


def test_the_first_overdue_request_is_found_also_behind_patient_ones() -> None:
    queue = RequestQueue()
    queue.sent(pending(1, deadline=50.0))
    queue.sent(pending(2, deadline=5.0))
    assert queue.next_deadline == 5.0
    assert queue.overdue(4.9) is None
    late = queue.overdue(5.0)
    assert late is not None
    assert late.correlation_id == 2


def offers(**ranges: tuple[int, int]) -> PeerVersions:
    return PeerVersions(
        {api_by_name(name).key: VersionRange(*api_name) for name, api_name in ranges.items()}, "b:1"
    )


def test_the_highest_version_that_both_know_is_spoken() -> None:
    assert offers(Metadata=(0, 5)).choose(METADATA) == 5
    assert offers(Metadata=(0, 99)).choose(METADATA) == METADATA.latest_stable
    assert offers(Metadata=(0, 99)).choose(METADATA, at_most=9) == 9


@pytest.mark.parametrize(
    ("peer", "words"),
    [
        (offers(), "the broker at b:1 does not offer Fetch"),
        (offers(Fetch=(0, 3)), "speaks Fetch 0-3, this client 4-18"),
        (offers(Fetch=(20, 25)), "speaks Fetch 20-25, this client 4-18"),
    ],
)
def test_without_a_common_version_the_error_names_both_ranges(peer: PeerVersions, words: str) -> None:
    with pytest.raises(KafkaError, match=words) as caught:
        peer.choose(api_by_name("Fetch"))
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_refused_greeting_is_repeated_at_the_version_that_the_refusal_names() -> None:
    api = api_by_name("ApiVersions")
    named = ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)])
    assert greeting_retry(named, api) == 2
    assert greeting_retry(ApiVersionsResponse(), api) == 0


@pytest.mark.parametrize(
    ("first_bytes", "words"),
    [
        (b"HTTP/1.1 400 Bad Request", "HTTP"),
        (b"\x15\x03\x01\x00\x02\x02\x16", "TLS"),
        (b"SSH-2.0-OpenSSH", "SSH"),
        (b"220 mail ESMTP", "another kind"),
        (b"\x00\x00\x01\x02\x00\x00\x00\x01", None),
    ],
)
def test_other_protocols_are_recognised_by_their_first_bytes(first_bytes: bytes, words: str | None) -> None:
    described = describe_peer(first_bytes)
    assert described is None if words is None else words in (described or "")


def test_pauses_double_up_to_the_limit_and_vary(chance: Any) -> None:
    backoff = Backoff(100, 1_000, chance)
    assert [round(backoff.delay_s(attempt), 3) for attempt in range(6)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]
    chance.value = 0.0
    assert backoff.delay_s(0) == pytest.approx(0.08)
    chance.value = 0.999_999
    assert backoff.delay_s(10**9) == pytest.approx(1.2)


def test_a_broker_is_left_alone_for_as_long_as_it_asks() -> None:
    mute = ThrottleState()
    assert mute.left_s(5.0) == 0
    assert mute.record(2000, 10.0) == 2
    assert mute.record(500, 11.0) == 0, "it is shorter than what is left"
    assert mute.record(3000, 11.0) == 2
    assert [mute.left_s(now) for now in (11.0, 13.5, 14.0, 20.0)] == [3, 0.5, 0, 0]


def test_a_pause_without_sense_is_not_believed() -> None:
    assert ThrottleState().record(0x7FFF_FFFF, 0.0) == MUTE_S_MAX


def test_a_mute_does_not_count_against_requests_under_way() -> None:
    queue = RequestQueue()
    queue.sent(pending(1, deadline=5.0))
    queue.postpone(3.0)
    assert queue.overdue(7.0) is None
    assert queue.next_deadline == 8.0


# -- on sockets


async def test_requests_are_pipelined_and_every_answer_finds_its_own(broker: Any, within: Within) -> None:
    async with opened(broker.port) as connection:
        broker.topics = {"a": 1, "b": 2}
        first = connection.send(MetadataRequest(topics=None))
        second = connection.send(MetadataRequest(topics=[]))
        assert connection.in_flight == 2
        assert [len(response.topics) for response in await within(asyncio.gather(first, second))] == [2, 0]
        assert connection.in_flight == 0


def throttling(broker: Any, ms: int) -> Callable[[Any], Any]:
    return lambda asked: broker.answer_Metadata(asked).replace(throttle_time_ms=ms)


async def test_a_muted_broker_is_asked_again_only_when_the_time_is_over(broker: Any, within: Within) -> None:
    broker.once["Metadata"].append(throttling(broker, 40))
    freed = asyncio.Event()
    async with opened(broker.port) as connection:
        connection.on_writable = freed.set
        await within(connection.send(MetadataRequest(topics=[])))
        assert not connection.writable
        held = [connection.send(MetadataRequest(topics=topics)) for topics in ([], None)]
        assert connection.in_flight == 2
        assert len(broker.requests("Metadata")) == 1
        assert [len(response.topics) for response in await within(asyncio.gather(*held))] == [0, 1]
        await within(freed.wait())
        assert connection.writable


async def test_what_waits_for_the_end_of_a_mute_fails_with_its_connection(
    broker: Any, within: Within
) -> None:
    broker.once["Metadata"].append(throttling(broker, 30_000))
    async with opened(broker.port) as connection:
        await within(connection.send(MetadataRequest(topics=[])))
        held = connection.send(MetadataRequest(topics=[]))
        connection.close()
        with pytest.raises(BrokerUnreachableError, match="was closed"):
            await within(held)


async def test_a_request_under_way_outlives_a_mute(
    broker: Any, within: Within, silence: object, clock: Any
) -> None:
    def answer_after_its_deadline(asked: Any) -> Any:
        response = encode_response(3, asked.version, 3, broker.answer_Metadata(asked))
        asyncio.get_running_loop().call_later(0.1, broker.writers[-1].writelines, response)
        return silence

    broker.once["Metadata"] += [throttling(broker, 30_000), answer_after_its_deadline]
    async with opened(broker.port, clock=clock) as connection:
        first = connection.send(MetadataRequest(topics=[]))
        second = connection.send(MetadataRequest(topics=[]), timeout_s=0.05)
        await within(first)
        clock.now += 29.0
        assert (await within(second)).cluster_id == "scripted"


async def test_a_broker_that_knows_only_old_greetings_is_asked_again(broker: Any, silence: object) -> None:
    def refuse(_: Any) -> object:
        listed = [ApiVersion(api_key=18, min_version=0, max_version=0)]
        refusal = encode(
            ApiVersionsResponse(error_code=35, api_keys=listed), 0
        )  # in version 0, whatever was asked
        frame = (1).to_bytes(4, "big") + refusal
        broker.writers[-1].write(len(frame).to_bytes(4, "big") + frame)
        return silence

    broker.once["ApiVersions"].append(refuse)
    async with opened(broker.port):
        assert [request.version for request in broker.asked] == [5, 0]


async def test_an_overdue_answer_closes_the_connection_and_fails_everything_behind_it(
    broker: Any, within: Within, silence: object
) -> None:
    broker.on["Metadata"] = lambda _: silence
    async with opened(broker.port) as connection:
        first = connection.send(MetadataRequest(topics=[]), timeout_s=0.05)
        second = connection.send(MetadataRequest(topics=[]), timeout_s=20)
        for future in (first, second):
            with pytest.raises(TimedOutError, match="did not answer Metadata in time"):
                await within(future)
        assert connection.closed
        with pytest.raises(KafkaError):
            await connection.send(MetadataRequest(topics=[]))


async def test_a_connection_that_breaks_fails_what_was_under_way_as_retriable(
    broker: Any, within: Within, hang_up: object
) -> None:
    broker.once["Metadata"].append(lambda _: hang_up)
    async with opened(broker.port) as connection:
        with pytest.raises(BrokerUnreachableError, match="closed the connection") as caught:
            await within(connection.send(MetadataRequest(topics=[])))
        assert caught.value.retriable


async def test_an_answer_out_of_step_closes_the_connection(
    broker: Any, within: Within, silence: object
) -> None:
    def confuse(_: Any) -> object:
        broker.writers[-1].write((8).to_bytes(4, "big") + (4711).to_bytes(4, "big") + bytes(4))
        return silence

    broker.once["Metadata"].append(confuse)
    async with opened(broker.port) as connection:
        with pytest.raises(KafkaError, match="answer to request 4711"):
            await within(connection.send(MetadataRequest(topics=[])))
        assert connection.closed


async def test_an_answer_that_cannot_be_read_says_whose_and_of_what(
    broker: Any, within: Within, silence: object
) -> None:
    def garble(_: Any) -> object:
        broker.writers[-1].write((5).to_bytes(4, "big") + (2).to_bytes(4, "big") + b"\x7f")
        return silence

    broker.once["Metadata"].append(garble)
    async with opened(broker.port) as connection:
        with pytest.raises(KafkaError, match=r"answer of 127\.0\.0\.1:\d+ to Metadata cannot be read"):
            await within(connection.send(MetadataRequest(topics=[])))


async def test_an_http_server_is_recognised() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()

    async with stranger(talk) as port:
        with pytest.raises(
            WrongPeerError, match=rf"what listens at 127\.0\.0\.1:{port} answers in HTTP, not Kafka"
        ):
            async with opened(port):
                pass


async def test_a_tls_server_is_recognised() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"\x15\x03\x03\x00\x02\x02\x46")
        await writer.drain()

    async with stranger(talk) as port:
        with pytest.raises(WrongPeerError, match="wants TLS") as caught:
            async with opened(port):
                pass
        assert not caught.value.retriable


async def test_a_peer_that_hangs_up_at_once_is_asked_about_in_words() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)

    async with stranger(talk) as port:
        with pytest.raises(BrokerUnreachableError, match="closed the connection before answering"):
            async with opened(port):
                pass


async def test_a_peer_that_says_nothing_is_given_up(within: Within) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with stranger(talk) as port:
        with pytest.raises(
            BrokerUnreachableError, match=rf"cannot connect to 127\.0\.0\.1:{port}: no answer in time"
        ):
            async with opened(port, socket_connection_setup_timeout_ms=50):
                pass


async def test_a_closed_port_and_an_unknown_host_are_distinguished() -> None:
    with pytest.raises(BrokerUnreachableError, match=r"cannot connect to 127\.0\.0\.1:1: connection refused"):
        async with opened(1):
            pass
    with pytest.raises(
        BrokerUnreachableError, match=r"cannot connect to no-such-host\.invalid:9092: .*resolved"
    ):
        await BrokerConnection.open(Address("no-such-host.invalid", 9092), settings(), SystemClock())


@pytest.mark.parametrize(
    "address",
    [
        Address("127.0.0.1", 70_000),
        Address("127.0.0.1", -1),
        Address("a" * 70, 9092),
        Address("label..missing", 9092),
        Address("with\0zero", 9092),
    ],
)
async def test_a_name_or_port_that_no_host_has_is_as_good_as_unreachable(address: Address) -> None:
    """Brokers say where others listen: what one of them gets wrong must not end the client."""
    with pytest.raises(BrokerUnreachableError, match="cannot connect to") as caught:
        await BrokerConnection.open(address, settings(), SystemClock())
    assert caught.value.retriable
