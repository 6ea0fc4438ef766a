"""Dispatches requests: decodes a frame, calls the handler of its API, and encodes the answer.

Checks come in one order everywhere: known API, version, shape; then, in the handlers, authorisation,
existence, leadership, epoch, work. What fails the first three has no response that the peer could read, so
the connection is closed (as Kafka does). ApiVersions is the exception: every client can read its version 0
response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from odradek.broker.cluster.forwarded_apis import CHANGES, FORWARDED, is_local
from odradek.broker.requests.context import (
    FEW_ELEMENTS,
    ApiHandler,
    BrokerContext,
    HeldResponse,
    LaterResponse,
    RequestContext,
    ShortWay,
)
from odradek.broker.requests.refusals import UnfitResponse, log_refusals
from odradek.broker.requests.throttling import Charge
from odradek.cluster.image import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.lazy import lazy
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply, PeerError, Reply
from odradek.protocol import (
    APIS,
    Api,
    Message,
    RequestHeader,
    TooManyElements,
    decode,
    decode_request_header,
    encode_response,
)
from odradek.protocol.acls import CLUSTER_NAME, AclOperation, AclResourceType
from odradek.protocol.api import BROKER_SOFTWARE
from odradek.protocol.messages.metadata.api_versions import ApiVersion, ApiVersionsResponse
from odradek.runtime.ports import Buffer
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import StartedCoroutine
from odradek.security.principals import Requester
from odradek.security.quotas import Quotas

if TYPE_CHECKING:
    from odradek.broker.requests import answer_deadlines, authorization, large_messages
else:
    answer_deadlines = lazy("odradek.broker.requests.answer_deadlines")
    authorization = lazy("odradek.broker.requests.authorization")
    large_messages = lazy("odradek.broker.requests.large_messages")

_API_VERSIONS: Final = 18
_KINDS: Final = {
    "groups": (CONSUMER_OFFSETS,),
    "share": (CONSUMER_OFFSETS, SHARE_GROUP_STATE),
    "transactions": (TRANSACTION_STATE,),
}
"""Family of APIs -> the coordinators that it is about."""
_OF_GROUPS_TOO: Final = frozenset({25, 28})
"""AddOffsetsToTxn and TxnOffsetCommit: transactions that hold a group's offsets."""
_BOUNDED: Final = CHANGES | {90, 91, 92}
"""Changes of the cluster, and of share groups' offsets: their waits are bounded, and may add up to more than clients wait."""
_INIT_PRODUCER_ID: Final = 22
"""Most often without a transaction."""
_BEFORE_JOIN: Final = frozenset({17, _API_VERSIONS, 36}) | {api.key for api in APIS.values() if api.internal}
"""Logins, ApiVersions and what brokers ask: served before this broker knows its cluster."""
_JOIN_MS_MAX: Final = 10_000
"""The longest wait of a client's request while its broker joins. Then it gets an error such as NOT_LEADER."""
_FUTURES: Final = (PromptFuture, asyncio.Future)


class _Route(NamedTuple):
    """An API, its handler, and whether each request of it is for this broker itself, however long its answer takes."""

    api: Api
    served: ApiHandler
    is_plain: bool
    lowest: int
    highest: int
    """The versions that are served."""
    short: ShortWay | None
    """The handler's shortcut, where no gate comes before the handler."""


class Dispatcher:
    """The `RequestHandler` of the network layer."""

    def __init__(
        self, broker: BrokerContext, served: Mapping[int, ApiHandler], quotas: Quotas | None = None
    ) -> None:
        self._broker = broker
        self._quotas = quotas or Quotas()
        self._served = served
        self._routes: dict[int, _Route] = {}
        self._for_brokers = broker.config.network.inter_broker_listener_name
        """The listener that serves brokers; None if all do."""
        self._control_plane = broker.config.network.control_plane_listener_name
        """The listener at which the controller serves brokers, and nothing else is served; None if there is none."""
        self._figures = broker.requests

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        if self._control_plane is not None and connection.listener.name == self._control_plane:
            self._check_control_plane(frame)
        began = self._figures.now()
        reply = self.serve(connection, frame)
        return self._figures.answered(connection, frame, reply, began)

    def _check_control_plane(self, frame: memoryview) -> None:
        header, _ = decode_request_header(frame)
        if not authorization.is_of_control_plane(header.api_key):
            api = APIS[header.api_key].name if header.api_key in APIS else str(header.api_key)
            raise PeerError(
                f"{api} is not served at listener {self._control_plane} (control.plane.listener.name): only what brokers ask "
                "of the controller is"
            )

    def serve(self, connection: Connection, frame: memoryview, requester: Requester | None = None) -> Reply:
        """Serves a request of any listener. `requester`: the client of a request that another broker forwards."""
        header, position = decode_request_header(frame)
        joining = self._broker.cluster.joining
        if joining is not None and _waits_for_join(connection, header):
            return HeldReply(self._serve_when_joined(joining, connection, frame, requester))
        return self._serve_header(connection, header, frame, position, requester)

    async def _serve_when_joined(
        self, joining: asyncio.Event, connection: Connection, frame: memoryview, requester: Requester | None
    ) -> Chunks | None:
        """Serves a request once this broker has joined the cluster: it listens earlier, because it has to register its port.
        Clients wait for that, within a bound."""
        await with_timeout(_set(joining), _JOIN_MS_MAX)
        header, position = decode_request_header(frame)
        return await _settled(self._serve_header(connection, header, frame, position, requester))

    def _serve_header(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        requester: Requester | None,
    ) -> Reply:
        route = self._routes.get(header.api_key)
        if route is None:
            if kinds := self._kinds_to_import(header.api_key):
                return HeldReply(self._handle_after_import(kinds, connection, frame, requester))
            route = self._route(header.api_key)
        api = route.api
        version = header.api_version
        if not route.lowest <= version <= route.highest:
            if header.api_key != _API_VERSIONS:
                raise PeerError(f"{api.name} version {version} is not supported ({api.versions} are)")
            return self._refuse_api_versions(header.correlation_id)
        if (
            route.short is not None
            and requester is None
            and not self._quotas.active
            and self._broker.principals is None
        ):
            connection.figures.client_id = header.client_id or ""
            encode = partial(self._encoded, connection, header, None)
            reply = route.short(self._broker, connection, header, frame, position, encode)
            if reply is not None:
                return reply
        try:
            request, _ = decode(api.request, version, frame, position, FEW_ELEMENTS)
        except TooManyElements:
            # Held: what the connection asks next must not overtake this.
            return HeldReply(self._handle_large(connection, header, frame, position, requester))
        if route.is_plain and self._for_brokers is None:
            return self._serve(connection, header, request, len(frame), requester)
        return self._handle_in_time(connection, header, request, frame, requester)

    def _kinds_to_import(self, api_key: int) -> list[str]:
        """Coordinators whose code a request of this API is the first to need."""
        known = api_key in self._served and api_key != _INIT_PRODUCER_ID
        kinds = _KINDS.get(APIS[api_key].family, ()) if known else ()
        if known and api_key in _OF_GROUPS_TOO:
            kinds += (CONSUMER_OFFSETS,)
        return [kind for kind in kinds if not self._broker.coordinators.is_imported(kind)]

    async def _handle_after_import(
        self, kinds: list[str], connection: Connection, frame: memoryview, requester: Requester | None
    ) -> Chunks | None:
        for kind in kinds:
            await self._broker.coordinators.import_on_thread(kind)
        return await _settled(self.serve(connection, frame, requester))

    async def _handle_large(
        self,
        connection: Connection,
        header: RequestHeader,
        frame: memoryview,
        position: int,
        requester: Requester | None,
    ) -> Chunks | None:
        try:
            request = await large_messages.read(self._broker, header, frame, position)
        except TooManyElements:
            return await _settled(
                self._encoded(connection, header, None, large_messages.refusal(self._broker.config, header))
            )
        return await _settled(self._handle_in_time(connection, header, request, frame, requester))

    def _handle_in_time(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Message,
        frame: memoryview,
        requester: Requester | None,
    ) -> Reply:
        reply = self._handle(connection, header, request, frame, requester)
        later = reply.chunks if isinstance(reply, HeldReply) else reply
        if header.api_key not in _BOUNDED or not isinstance(later, Awaitable):
            return reply

        def refused(response: Message) -> Awaitable[Chunks | None]:
            return _settled(self._encoded(connection, header, None, response))

        api, version = APIS[header.api_key], header.api_version
        bounded = answer_deadlines.in_time(later, api, version, request, refused)
        return HeldReply(bounded) if isinstance(reply, HeldReply) else bounded

    def _handle(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Message,
        frame: memoryview,
        requester: Requester | None,
    ) -> Reply:
        api = APIS[header.api_key]
        if (
            self._for_brokers is not None
            and connection.listener.name not in (self._for_brokers, self._control_plane)
            and authorization.is_between_brokers(api, request)
        ):
            return self._refuse_stranger(connection, header, api)
        if header.api_key in FORWARDED and not is_local(header.api_key, request):
            if not self._broker.cluster.leads:
                return self._forward(connection, header, bytes(frame), requester)
            if header.api_key in CHANGES:
                return self._decide(connection, header, request, frame, requester)
        return self._serve(connection, header, request, len(frame), requester)

    def _serve(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Message,
        size_bytes: int,
        requester: Requester | None = None,
    ) -> Reply:
        served = self._routes[header.api_key].served
        version = header.api_version
        context = RequestContext(
            connection=connection,
            api_version=version,
            client_id=header.client_id or "",
            correlation_id=header.correlation_id,
            requester=requester
            or (connection.requester if self._broker.principals is None else self._requester_of(connection)),
        )
        connection.figures.client_id = context.client_id
        if self._quotas.active and not self._is_of_broker(context):
            # Replication has throttles of its own; a muted broker would fall out of sync.
            now = self._broker.runtime.clock.monotonic
            charge = Charge(self._quotas, now, header.api_key, context, size_bytes)
            response = charge.timed(lambda: served.handle(self._broker, context, request))
        else:
            charge = None
            response = served.handle(self._broker, context, request)
        if response is None:
            return None
        if isinstance(response, LaterResponse):
            return _encoded_later(
                response.source, partial(self._encoded, connection, header, charge), response.make
            )
        if isinstance(response, _FUTURES):
            encode = partial(self._encoded, connection, header, charge)
            later = _encoded_later(response, encode)
            return HeldReply(later) if served.holds else later
        if isinstance(response, HeldResponse):
            return HeldReply(self._finish(response.response, connection, header, charge))
        if isinstance(response, Awaitable):
            if charge is None and served.is_quick:
                return self._begun(response, connection, header)
            return self._finish(response, connection, header, charge)
        return self._encoded(connection, header, charge, response)

    def _requester_of(self, connection: Connection) -> Requester:
        principals = self._broker.principals
        known = connection.requester
        return known if principals is None else principals.of(known, connection.listener.name)

    def _begun(self, response: Awaitable[Message], connection: Connection, header: RequestHeader) -> Reply:
        """Most often the work is done by its first step, and a task for it would cost more than the work."""
        assert isinstance(response, Coroutine)
        try:
            wanted = response.send(None)
        except StopIteration as end:
            return self._encoded(connection, header, None, end.value)
        return HeldReply(self._finish(StartedCoroutine(response, wanted), connection, header, None))

    def _refuse_stranger(self, connection: Connection, header: RequestHeader, api: Api) -> Reply:
        response = authorization.refusal(api)
        if response is None:
            raise PeerError(f"{api.name} is served at listener {self._for_brokers} only")
        return self._encoded(connection, header, None, response)

    async def _forward(
        self, connection: Connection, header: RequestHeader, frame: bytes, requester: Requester | None
    ) -> Chunks | None:
        """Returns the controller's answer; without a controller this broker's own, or nothing if the peer has
        disconnected."""
        asker = requester or self._requester_of(connection)
        response = await self._broker.cluster.forwarding.answer(
            frame, asker, lambda: connection.peer_finished
        )
        if response is not None or connection.peer_finished:
            return response
        _, position = decode_request_header(frame)
        cls = APIS[header.api_key].request
        try:
            request, _ = decode(cls, header.api_version, frame, position, FEW_ELEMENTS)
        except TooManyElements:
            request = await large_messages.read(self._broker, header, frame, position)
        if self._broker.cluster.leads and header.api_key in CHANGES:
            return await self._decide(connection, header, request, memoryview(frame), requester)
        return await _settled(self._serve(connection, header, request, len(frame), requester))

    async def _decide(
        self,
        connection: Connection,
        header: RequestHeader,
        request: Message,
        frame: memoryview,
        requester: Requester | None,
    ) -> Chunks | None:
        """Returns the answer of this broker as the controller.

        What was committed proves that its term was not over. A refusal proves nothing: a controller that was deposed and does
        not know it refuses by what it knew. So the registry is asked, and the request is passed on if another one is in office.
        """
        controller = self._broker.controller
        before = controller.latest
        response = await _settled(self._serve(connection, header, request, len(frame), requester))
        if controller.latest is not before:
            return response
        try:
            await controller.confirm_office()
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                api = APIS[header.api_key].name
                raise PeerError(
                    f"{api} is not answered: this broker may not be the controller any more ({error.message})"
                ) from error
            return await self._forward(connection, header, bytes(frame), requester)
        return response

    def _route(self, api_key: int) -> _Route:
        if api_key not in self._served:
            name = APIS[api_key].name if api_key in APIS else "unknown"
            raise PeerError(f"API {api_key} ({name}) is not served by this broker")
        api, served = APIS[api_key], self._served[api_key]
        if self._broker.gate is not None:
            served = self._broker.gate.guarded(api, served)
        if self._broker.audit is not None:
            served = self._broker.audit.watched(api, served)
        is_plain = api_key not in FORWARDED and api_key not in _BOUNDED
        short = (
            served.short if is_plain and self._broker.gate is None and self._broker.audit is None else None
        )
        route = self._routes[api_key] = _Route(
            api, served, is_plain, api.versions.min, api.versions.max, short
        )
        return route

    def _is_of_broker(self, context: RequestContext) -> bool:
        """Tells whether the peer calls itself a broker and, with an authorizer, may do what only brokers may do."""
        if context.connection.client_software[0] != BROKER_SOFTWARE:
            return False
        authorizer, asker = self._broker.authorizer, self._requester_of(context.connection)
        return authorizer is None or authorizer.may(
            asker.principal, asker.host, AclOperation.CLUSTER_ACTION, AclResourceType.CLUSTER, CLUSTER_NAME
        )

    def _refuse_api_versions(self, correlation_id: int) -> list[Buffer]:
        """Version 0 with error 35 and the supported range, so that the client can come again with one of them."""
        offered = APIS[_API_VERSIONS].offered()
        known = ApiVersion(api_key=_API_VERSIONS, min_version=offered.min, max_version=offered.max)
        refused = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        return encode_response(_API_VERSIONS, 0, correlation_id, refused)

    async def _finish(
        self,
        response: Awaitable[Message | None],
        connection: Connection,
        header: RequestHeader,
        charge: Charge | None,
    ) -> Chunks | None:
        message = await (response if charge is None else charge.timed_steps(response))
        return None if message is None else await _settled(self._encoded(connection, header, charge, message))

    def _encoded(
        self, connection: Connection, header: RequestHeader, charge: Charge | None, message: Message
    ) -> Chunks | HeldReply:
        """Returns the response's bytes; what it refuses goes into the log."""
        key, version = header.api_key, header.api_version
        api = APIS[key].name
        try:
            if charge is None:
                chunks = encode_response(key, version, header.correlation_id, message, FEW_ELEMENTS)
            else:
                encode = partial(
                    encode_response, key, version, header.correlation_id, elements_max=FEW_ELEMENTS
                )
                chunks = charge.encoded(version, message, encode)
                if charge.delay_s:
                    self._figures.throttled(key, charge.delay_s)
        except TooManyElements:
            return HeldReply(large_messages.write(self._broker, connection, header, charge, message))
        except OdradekError as error:
            raise UnfitResponse(f"{api} version {header.api_version}: {error}") from error
        for refusal in log_refusals(connection, header, api, message, self._broker.runtime.clock.monotonic):
            self._figures.failed(key, refusal.code)
        return chunks


def _waits_for_join(connection: Connection, header: RequestHeader) -> bool:
    """Returns whether a client's request depends on what this broker leads, or on which other brokers exist."""
    return connection.client_software[0] != BROKER_SOFTWARE and header.api_key not in _BEFORE_JOIN


async def _set(event: asyncio.Event) -> None:
    await event.wait()


def _encoded_later(
    source: asyncio.Future[Any] | PromptFuture[Any],
    encode: Callable[[Any], Chunks | HeldReply],
    make: Callable[[Any], Message] | None = None,
) -> PromptFuture[Chunks | None]:
    """Returns the bytes of what `source` will hold, or of what `make` makes of it; cancelling them cancels `source`, started or
    not."""
    target: PromptFuture[Chunks | None] = PromptFuture(source)

    def settle(done: asyncio.Future[Any] | PromptFuture[Any]) -> None:
        if target.done():
            return
        if done.cancelled():
            target.cancel()
        elif make is None and (error := done.exception()) is not None:
            target.set_exception(error)
        else:
            try:
                chunks = encode(done.result() if make is None else make(done))
            except Exception as unfit:  # noqa: BLE001 - a connection waits for this: it must learn of any end
                target.set_exception(unfit)
                return
            if isinstance(chunks, HeldReply):
                target.follow(asyncio.ensure_future(chunks.chunks))
            else:
                target.set_result(chunks)

    source.add_done_callback(settle)
    return target


async def _settled(reply: Reply) -> Chunks | None:
    """Awaits a reply and returns its outcome."""
    if isinstance(reply, HeldReply):
        reply = reply.chunks
    return await reply if isinstance(reply, Awaitable) else reply


async def with_timeout(work: Awaitable[None], timeout_ms: int) -> bool:
    """Wait for `work` at most `timeout_ms`; True when it was done in time. What it raises comes through."""
    try:
        async with asyncio.timeout(max(timeout_ms, 0) / 1000):
            await work
    except TimeoutError:
        return False
    return True


def closing_error(error: KafkaError) -> PeerError:
    """Returns an error that closes the connection: the only way to report a failed request without response (acks=0)."""
    return PeerError(f"a request without response failed: {error}")
