"""Requests for the controller: how long they look for one, and for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest
from tests.kit.waiting import PATIENCE_S
from tests.kit.wire import request_frame

from odradek.broker.cluster import forwarding
from odradek.broker.cluster.forwarding import Forwarding
from odradek.broker.instruments.requests import RequestFigures
from odradek.broker.requests.context import ApiHandler
from odradek.broker.requests.dispatch import Dispatcher
from odradek.config.broker import BrokerConfig
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.net.connection import Connection
from odradek.net.connection_owner import ConnectionFigures
from odradek.net.peers import PeerUnreachable
from odradek.net.replies import PeerError
from odradek.protocol import Message, decode_response
from odradek.protocol.messages.cluster.forward import ForwardRequest, ForwardResponse
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from odradek.runtime.real import real_runtime
from odradek.security.principals import UNKNOWN_REQUESTER, Requester

DELETE_TOPICS, VERSION = 20, 5
REFUSED = ForwardResponse(error_code=ErrorCode.NOT_CONTROLLER)
DONE = ForwardResponse(response_data=b"done", controller_epoch=1, image_version=1)


class Elsewhere:
    """A cluster whose controller, if there is one, is another broker; `answers` are those that are given, in order."""

    def __init__(self, controller: int | None, *answers: ForwardResponse | PeerUnreachable) -> None:
        self.leads = False
        self.joining = None
        self.controller_id = None if controller is None else BrokerId(controller)
        self.asked: list[bytes] = []
        self.on_asked: Callable[[], None] = lambda: None
        self.forwarding = Forwarding(self)
        self._answers = list(answers)
        self._changed = asyncio.Event()

    async def send_to_control_plane(
        self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float
    ) -> Message:
        assert broker == self.controller_id
        self.asked.append(cast(ForwardRequest, request).request_data)
        self.on_asked()
        next_answer = self._answers.pop(0)
        if isinstance(next_answer, PeerUnreachable):
            raise next_answer
        return next_answer

    async def controller_changed(self) -> None:
        await self._changed.wait()
        self._changed.clear()

    async def reached(self, controller_epoch: int, version: int) -> None:
        """It is."""

    def elect(self, controller: int) -> None:
        self.controller_id = BrokerId(controller)
        self._changed.set()


class ClientConnection:
    """A connection as a broker sees it."""

    peer_host = "client"
    requester = UNKNOWN_REQUESTER

    def __init__(self) -> None:
        self.peer_finished = False
        self.figures = ConnectionFigures()

    def leave(self) -> None:
        self.peer_finished = True


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarding, "RETRY_SECONDS", 0)


@pytest.fixture
def client() -> ClientConnection:
    return ClientConnection()


async def passed_on(cluster: Elsewhere, client: ClientConnection) -> list[Any] | None:
    async with asyncio.timeout(PATIENCE_S):
        return await cluster.forwarding.answer(
            b"request", Requester(host="client"), lambda: client.peer_finished
        )


@pytest.mark.parametrize("first", [REFUSED, PeerUnreachable("it is away")])
async def test_a_request_that_no_controller_took_is_passed_on_again(
    client: ClientConnection, first: ForwardResponse | PeerUnreachable
) -> None:
    cluster = Elsewhere(2, first, DONE)
    assert await passed_on(cluster, client) == [b"\0\0\0\4", b"done"]
    assert len(cluster.asked) == 2


@pytest.mark.parametrize("first", [REFUSED, PeerUnreachable("it is away")])
async def test_a_request_that_no_controller_took_is_not_passed_on_again_for_a_client_that_has_gone(
    client: ClientConnection, first: ForwardResponse | PeerUnreachable
) -> None:
    cluster = Elsewhere(2, first, DONE)
    cluster.on_asked = client.leave
    assert await passed_on(cluster, client) is None
    assert len(cluster.asked) == 1


async def test_a_controller_that_is_elected_too_late_is_not_asked_for_a_client_that_has_gone(
    client: ClientConnection,
) -> None:
    cluster = Elsewhere(None, DONE)
    waiting = asyncio.create_task(passed_on(cluster, client))
    await asyncio.sleep(0)
    client.leave()
    cluster.elect(2)
    assert await waiting is None
    assert not cluster.asked


async def test_a_client_that_only_ended_its_side_gets_the_answer_to_what_was_passed_on(
    client: ClientConnection,
) -> None:
    client.leave()
    assert await passed_on(Elsewhere(2, DONE), client) == [b"\0\0\0\4", b"done"]


class Office:
    """The controller of this broker: `image` is what it committed last, `doubt` what the registry says when it is asked."""

    def __init__(self, cluster: Elsewhere, doubt: ErrorCode | None = None) -> None:
        self.latest = object()
        self.asked_count = 0
        self._cluster = cluster
        self._doubt = doubt

    async def confirm_office(self) -> None:
        self.asked_count += 1
        if self._doubt is not None:
            self._cluster.leads = self._doubt is not ErrorCode.NOT_CONTROLLER
            raise KafkaError(self._doubt)

    def commit(self) -> None:
        self.latest = object()


class FakeContext:
    """The context of a broker in that cluster."""

    runtime = real_runtime()
    requests = RequestFigures(runtime.clock.monotonic)

    config = BrokerConfig()
    gate = None
    principals = None
    audit = None

    def __init__(self, cluster: Elsewhere, office: Office | None = None) -> None:
        self.cluster = cluster
        self.controller = office or Office(cluster)


async def deleted(
    context: FakeContext, client: ClientConnection, serve: Callable[[], None] = lambda: None
) -> DeleteTopicsResponse | bytes | None:
    """The answer to a request that deletes a topic, of the broker itself or of another one."""

    def handle(_broker: object, _context: object, _request: DeleteTopicsRequest) -> DeleteTopicsResponse:
        serve()
        return DeleteTopicsResponse(responses=[])

    dispatcher = Dispatcher(cast(Any, context), {DELETE_TOPICS: ApiHandler(DELETE_TOPICS, handle)})
    frame = request_frame(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1), VERSION)[4:]
    async with asyncio.timeout(PATIENCE_S):
        chunks = await cast(Any, dispatcher.handle(cast(Connection, client), memoryview(frame)))
    if chunks is None:
        return None
    response = b"".join(chunks)[4:]
    if response == DONE.response_data:
        return response
    return cast(DeleteTopicsResponse, decode_response(DELETE_TOPICS, VERSION, response)[1])


@pytest.mark.parametrize(("stays", "served_count"), [(True, 1), (False, 0)])
async def test_a_broker_that_became_controller_serves_what_waited_only_for_clients_that_are_there(
    client: ClientConnection, stays: bool, served_count: int
) -> None:
    cluster = Elsewhere(2, REFUSED)
    served: list[None] = []

    def is_elected() -> None:
        cluster.leads = True
        client.peer_finished = not stays

    cluster.on_asked = is_elected
    response = await deleted(FakeContext(cluster), client, lambda: served.append(None))
    assert len(served) == served_count
    assert (response is not None) is stays


async def test_what_a_controller_refuses_is_answered_once_the_registry_confirmed_its_office(
    client: ClientConnection,
) -> None:
    cluster = Elsewhere(1)
    cluster.leads = True
    office = Office(cluster)
    assert await deleted(FakeContext(cluster, office), client) == DeleteTopicsResponse(responses=[])
    assert office.asked_count == 1


async def test_a_deposed_controller_passes_on_what_it_would_refuse(client: ClientConnection) -> None:
    cluster = Elsewhere(2, DONE)
    cluster.leads = True
    office = Office(cluster, ErrorCode.NOT_CONTROLLER)
    assert await deleted(FakeContext(cluster, office), client) == DONE.response_data
    assert len(cluster.asked) == 1


async def test_what_was_committed_needs_no_other_proof_of_office(client: ClientConnection) -> None:
    cluster = Elsewhere(2)
    cluster.leads = True
    office = Office(cluster, ErrorCode.NOT_CONTROLLER)
    response = await deleted(FakeContext(cluster, office), client, office.commit)
    assert response == DeleteTopicsResponse(responses=[])
    assert office.asked_count == 0


async def test_a_controller_that_cannot_reach_the_registry_refuses_nothing_by_what_it_knew(
    client: ClientConnection,
) -> None:
    cluster = Elsewhere(1)
    cluster.leads = True
    office = Office(cluster, ErrorCode.KAFKA_STORAGE_ERROR)
    with pytest.raises(
        PeerError, match="DeleteTopics is not answered: this broker may not be the controller"
    ):
        await deleted(FakeContext(cluster, office), client)
