"""Frames to handlers to bytes: what is refused before a handler sees it, and how answers leave."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kit.waiting import PATIENCE_S

from odradek.broker.handlers import served_apis
from odradek.broker.instruments.requests import RequestFigures
from odradek.broker.requests.answer_deadlines import ANSWER_SECONDS, seconds_for
from odradek.broker.requests.context import ApiHandler, LaterResponse
from odradek.broker.requests.dispatch import Dispatcher
from odradek.broker.requests.refusals import UnfitResponse, refusals
from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config
from odradek.model.errors import ErrorCode, KafkaError
from odradek.net.connection_owner import ConnectionFigures
from odradek.net.listening import OpenListener
from odradek.net.replies import HeldReply, PeerError
from odradek.protocol import APIS, Api, RequestHeader, api_by_name, decode_response, encode_request
from odradek.protocol.messages.configs.alter_configs import AlterConfigsRequest, AlterConfigsResource
from odradek.protocol.messages.data.fetch import FetchRequest, FetchResponse
from odradek.protocol.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsRequest
from odradek.protocol.messages.share.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from odradek.protocol.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.real import real_runtime
from odradek.security.principals import UNKNOWN_REQUESTER
from odradek.security.quotas import Quotas

FETCH, LIST_OFFSETS = 1, 2
UNFIT = ListOffsetsResponse(
    topics=[ListOffsetsTopicResponse(name="t", partitions=[ListOffsetsPartitionResponse(leader_epoch=7)])]
)
"""Version 1 has no leader epoch to put the 7 into."""


CONNECTION: Any = SimpleNamespace(
    figures=ConnectionFigures(), requester=UNKNOWN_REQUESTER, reported={}, peer="peer"
)
PEER: Any = SimpleNamespace(
    figures=ConnectionFigures(), requester=UNKNOWN_REQUESTER, client_software=("", "")
)
"""A connection, as far as it is asked."""


class FakeContext:
    runtime = real_runtime()
    requests = RequestFigures(runtime.clock.monotonic)

    config = BrokerConfig()
    gate = None
    audit = None
    principals = None
    quotas: Any = None
    cluster: Any = SimpleNamespace(joining=None)
    controller: Any = None
    coordinators: Any = None


def frame(name: str, version: int, request: Any) -> memoryview:
    header = RequestHeader(
        api_key=api_by_name(name).key, api_version=version, correlation_id=9, client_id="test"
    )
    return memoryview(encode_request(header, request))[4:]


def header_only(api_key: int, version: int) -> memoryview:
    start = b"".join(number.to_bytes(2, "big", signed=True) for number in (api_key, version))
    return memoryview(start + (9).to_bytes(4, "big") + b"\xff\xff" + b"\0\0\0\0")


def dispatcher(*served: ApiHandler) -> Dispatcher:
    return Dispatcher(FakeContext(), {api.api_key: api for api in served or served_apis()})  # type: ignore[arg-type]


def answering(api_key: int, response: Callable[[], Any], *, holds: bool = False) -> ApiHandler:
    return ApiHandler(api_key, lambda broker, context, request: response(), holds=holds)


def test_an_unknown_api_is_refused_by_its_number() -> None:
    with pytest.raises(PeerError, match=r"API 999 .unknown. is not served"):
        dispatcher().handle(PEER, header_only(999, 0))


def test_an_api_that_exists_and_is_not_served_is_refused_by_its_name() -> None:
    *served, last = served_apis()
    unserved = APIS[last.api_key]
    with pytest.raises(PeerError, match=unserved.name):
        dispatcher(*served).handle(PEER, header_only(unserved.key, unserved.versions.max))


@pytest.mark.parametrize("version", [-1, 0, 99])
def test_an_unsupported_version_is_refused_with_those_that_are(version: int) -> None:
    with pytest.raises((PeerError, KafkaError)):
        dispatcher().handle(PEER, header_only(LIST_OFFSETS, version))


def test_api_versions_in_an_unknown_version_is_answered_in_version_0() -> None:
    reply = dispatcher().handle(PEER, frame_of_api_versions(99))
    assert isinstance(reply, list)
    correlation_id, response = decode_response(18, 0, b"".join(reply)[4:])
    assert (correlation_id, response.error_code) == (9, 35)
    assert [(api_key.api_key, api_key.min_version, api_key.max_version) for api_key in response.api_keys] == [
        (18, 0, 5)
    ]


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_the_control_plane_serves_what_brokers_ask_of_the_controller_and_nothing_else(api: Api) -> None:
    settings = {
        "listeners": "PLAINTEXT://:9092,CONTROL://:9094",
        "listener.security.protocol.map": "CONTROL:PLAINTEXT",
        "control.plane.listener.name": "CONTROL",
    }
    context = FakeContext()
    context.config, _ = load_broker_config(settings)
    dispatching = Dispatcher(context, {api.key: answering(api.key, lambda: None)})  # type: ignore[arg-type]
    connection: Any = SimpleNamespace(
        figures=ConnectionFigures(), requester=UNKNOWN_REQUESTER, listener=OpenListener(name="CONTROL")
    )
    try:
        dispatching.handle(connection, header_only(api.key, api.versions.max))
        refused = False
    except PeerError as error:
        refused = "is not served at listener CONTROL" in str(error)
    except KafkaError:  # it goes on to read a body that is not there
        refused = False
    of_the_controller = {"ClusterSync", "Forward", "AlterPartition", "AllocateProducerIds"}
    assert refused == (
        api.name not in {*of_the_controller, "ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    )


def frame_of_api_versions(version: int) -> memoryview:
    data = bytearray(
        frame("ApiVersions", 3, ApiVersionsRequest(client_software_name="x", client_software_version="1"))
    )
    data[2:4] = version.to_bytes(2, "big")
    return memoryview(data)


def test_a_body_cut_short_is_refused_before_its_handler_sees_it() -> None:
    seen: list[int] = []
    api = answering(LIST_OFFSETS, lambda: seen.append(1))
    with pytest.raises(KafkaError, match="ListOffsetsRequest"):
        dispatcher(api).handle(PEER, frame("ListOffsets", 5, ListOffsetsRequest(replica_id=-1))[:-2])
    assert not seen


async def test_a_response_that_its_version_cannot_carry_is_our_fault_and_not_the_peers() -> None:
    request = frame("ListOffsets", 1, ListOffsetsRequest(replica_id=-1))
    with pytest.raises(UnfitResponse, match="ListOffsets"):
        dispatcher(answering(LIST_OFFSETS, lambda: UNFIT)).handle(PEER, request)

    async def later() -> ListOffsetsResponse:
        return UNFIT

    reply = dispatcher(answering(LIST_OFFSETS, later)).handle(PEER, request)
    with pytest.raises(UnfitResponse):
        await reply  # type: ignore[misc]


async def test_a_promise_that_turns_out_unfit_fails_instead_of_waiting_for_ever() -> None:
    promise: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    api = answering(LIST_OFFSETS, lambda: promise, holds=True)
    reply = dispatcher(api).handle(PEER, frame("ListOffsets", 1, ListOffsetsRequest(replica_id=-1)))
    assert isinstance(reply, HeldReply)
    promise.set_result(UNFIT)
    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(UnfitResponse):
            await reply.chunks


@pytest.mark.parametrize("is_prompt", [False, True])
async def test_giving_up_on_an_answer_cancels_the_work_behind_it(*, is_prompt: bool) -> None:
    promise: Any = PromptFuture() if is_prompt else asyncio.get_running_loop().create_future()
    api = answering(FETCH, lambda: promise, holds=True)
    reply = dispatcher(api).handle(PEER, frame("Fetch", 11, FetchRequest()))
    assert isinstance(reply, HeldReply)
    assert isinstance(reply.chunks, PromptFuture)
    reply.chunks.cancel()
    await asyncio.sleep(0)
    assert promise.cancelled()


@pytest.mark.parametrize("is_prompt", [False, True])
async def test_a_promise_that_is_kept_is_encoded_in_the_version_of_the_request(*, is_prompt: bool) -> None:
    promise: Any = PromptFuture() if is_prompt else asyncio.get_running_loop().create_future()
    reply = dispatcher(answering(FETCH, lambda: promise)).handle(PEER, frame("Fetch", 11, FetchRequest()))
    promise.set_result(FetchResponse(session_id=5))
    chunks = await reply  # type: ignore[misc]
    assert decode_response(FETCH, 11, b"".join(chunks)[4:]) == (9, FetchResponse(session_id=5))


def session(done: PromptFuture[int]) -> FetchResponse:
    """Makes a response of a number, or of the error in its place."""
    error = done.exception()
    if error is None:
        return FetchResponse(session_id=done.result())
    if isinstance(error, KafkaError):
        return FetchResponse(error_code=error.code)
    raise error


@pytest.mark.parametrize("is_awaited", [False, True])
@pytest.mark.parametrize("refusal", [None, KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "join again")])
async def test_a_response_is_made_of_what_comes_later_or_of_its_error(
    refusal: KafkaError | None, *, is_awaited: bool
) -> None:
    source: PromptFuture[int] = PromptFuture()
    later = LaterResponse(source, session)

    async def awaited() -> Any:
        return await later

    api = answering(FETCH, awaited if is_awaited else lambda: later)
    reply: Any = asyncio.ensure_future(dispatcher(api).handle(PEER, frame("Fetch", 11, FetchRequest())))  # type: ignore[arg-type]
    await asyncio.sleep(0)
    assert not reply.done()
    if refusal is None:
        source.set_result(5)
    else:
        source.set_exception(refusal)
    expected = FetchResponse(session_id=5) if refusal is None else FetchResponse(error_code=refusal.code)
    assert decode_response(FETCH, 11, b"".join(await reply)[4:]) == (9, expected)


async def test_what_cannot_be_made_into_a_response_ends_the_wait_and_a_given_up_wait_ends_its_source() -> (
    None
):
    source: PromptFuture[int] = PromptFuture()
    api = answering(FETCH, lambda: LaterResponse(source, session))
    reply: Any = dispatcher(api).handle(PEER, frame("Fetch", 11, FetchRequest()))
    source.set_exception(ZeroDivisionError())
    assert isinstance(reply.exception(), ZeroDivisionError)

    source = PromptFuture()
    dispatcher(api).handle(PEER, frame("Fetch", 11, FetchRequest())).cancel()  # type: ignore[union-attr]
    assert source.cancelled()


async def never() -> Any:
    await asyncio.get_running_loop().create_future()


@pytest.mark.parametrize(
    ("name", "version", "request_"),
    [
        (
            "AlterConfigs",
            1,
            AlterConfigsRequest(resources=[AlterConfigsResource(resource_type=2, resource_name="t")]),
        ),
        ("AlterShareGroupOffsets", 0, AlterShareGroupOffsetsRequest(group_id="g")),
        ("CreateTopics", 7, CreateTopicsRequest(topics=[CreatableTopic(name="t")], timeout_ms=10)),
    ],
)
async def test_a_change_that_takes_too_long_is_answered_all_the_same(
    monkeypatch: pytest.MonkeyPatch, name: str, version: int, request_: Any
) -> None:
    monkeypatch.setattr("odradek.broker.requests.answer_deadlines.ANSWER_SECONDS", 0.01)
    monkeypatch.setattr("odradek.broker.requests.answer_deadlines._GRACE_SECONDS", 0.01)
    api = api_by_name(name)
    context = FakeContext()
    context.cluster = SimpleNamespace(leads=True, joining=None)
    context.controller = SimpleNamespace(latest=None)
    context.coordinators = SimpleNamespace(is_imported=lambda kind: True)
    served = Dispatcher(context, {api.key: answering(api.key, never)})  # type: ignore[arg-type]
    async with asyncio.timeout(PATIENCE_S):
        chunks = await served.handle(CONNECTION, frame(name, version, request_))  # type: ignore[misc]
    _, response = decode_response(api.key, version, b"".join(chunks)[4:])
    assert {refusal.code for refusal in refusals(response)} == {ErrorCode.REQUEST_TIMED_OUT}


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("AddOffsetsToTxn", ["__transaction_state", "__consumer_offsets"]),
        ("TxnOffsetCommit", ["__transaction_state", "__consumer_offsets"]),
        ("EndTxn", ["__transaction_state"]),
        ("OffsetCommit", ["__consumer_offsets"]),
        ("ShareFetch", ["__consumer_offsets", "__share_group_state"]),
    ],
)
async def test_all_that_a_request_needs_is_imported_by_a_thread_before_it_is_served(
    name: str, kinds: list[str]
) -> None:
    api = api_by_name(name)
    imported: list[str] = []

    async def import_on_thread(kind: str) -> None:
        imported.append(kind)

    def handled() -> Any:
        assert imported == kinds
        return api.response()

    context = FakeContext()
    context.coordinators = SimpleNamespace(
        is_imported=lambda kind: kind in imported, import_on_thread=import_on_thread
    )
    served = Dispatcher(context, {api.key: answering(api.key, handled)})  # type: ignore[arg-type]
    version = api.latest_stable
    reply = served.handle(CONNECTION, frame(name, version, api.request()))
    assert await reply.chunks  # type: ignore[union-attr,misc]


def test_a_request_with_a_timeout_of_its_own_may_take_that_long() -> None:
    assert seconds_for(CreateTopicsRequest(timeout_ms=60_000)) > 60
    assert seconds_for(AlterConfigsRequest()) == ANSWER_SECONDS < 30


def with_short_way(short_answer: Any) -> ApiHandler:
    """ListOffsets, with a handler that answers with nothing, and a shorter way that answers with this."""
    return ApiHandler(
        LIST_OFFSETS,
        lambda broker, context, request: None,
        short=lambda broker, connection, header, frame, position, encode: short_answer,
    )


PLAIN_REQUEST = frame("ListOffsets", 5, ListOffsetsRequest(replica_id=-1))


def test_a_shorter_way_answers_in_place_of_the_handler_unless_it_leaves_the_request_to_it() -> None:
    assert dispatcher(with_short_way([b"x"])).handle(PEER, PLAIN_REQUEST) == [b"x"]
    assert PEER.figures.client_id == "test"
    assert dispatcher(with_short_way(None)).handle(PEER, PLAIN_REQUEST) is None


def guarded(api: Api, served: ApiHandler) -> ApiHandler:
    """What an authorizer's gate or the audit returns."""
    return replace(served, handle=lambda broker, context, request: None)


@pytest.mark.parametrize("observer", ["gate", "audit", "principals", "quotas", "another requester"])
def test_no_shorter_way_is_taken_where_something_must_see_the_request(observer: str) -> None:
    context: Any = FakeContext()
    quotas = None
    requester = None
    if observer == "gate":
        context.gate = SimpleNamespace(guarded=guarded)
    elif observer == "audit":
        context.audit = SimpleNamespace(watched=guarded)
    elif observer == "principals":
        context.principals = SimpleNamespace(of=lambda requester, listener: requester)
    elif observer == "quotas":
        quotas = Quotas()
        quotas.active = True
    else:
        requester = UNKNOWN_REQUESTER
    api = with_short_way([b"x"])
    dispatching = Dispatcher(context, {LIST_OFFSETS: api}, quotas)
    peer: Any = SimpleNamespace(
        figures=ConnectionFigures(),
        requester=UNKNOWN_REQUESTER,
        client_software=("", ""),
        listener=OpenListener(name="PLAINTEXT"),
    )
    assert dispatching.serve(peer, PLAIN_REQUEST, requester) is None
