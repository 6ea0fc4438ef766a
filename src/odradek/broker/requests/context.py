"""The arguments of every handler: the broker's parts, and the context of the request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self

from odradek.broker.cluster.link import ClusterLink
from odradek.broker.coordinators.producer_ids import ProducerIds
from odradek.broker.instruments.cluster_events import ElectionFigures, LoginFigures
from odradek.broker.instruments.requests import RequestFigures
from odradek.broker.instruments.slow_requests import SlowRequests
from odradek.broker.instruments.traffic import BrokerTraffic
from odradek.broker.produce.shared_appends import SharedAppends
from odradek.broker.replicas.log_dir_moves import LogDirMoves
from odradek.broker.replicas.replica_manager import ReplicaManager
from odradek.broker.sessions.fetch_sessions import FetchSessions
from odradek.broker.telemetry.client_telemetry import ClientTelemetry
from odradek.cluster.controller.controller import Controller
from odradek.cluster.image import BrokerImage, ClusterImage
from odradek.config.broker import BrokerConfig
from odradek.groups.consumer.regex import RegexWorker
from odradek.model.lazy import lazy
from odradek.net.connection import Connection
from odradek.net.replies import Chunks, HeldReply, Reply
from odradek.protocol import Api, Message, RequestHeader
from odradek.runtime.ports import Runtime
from odradek.runtime.prompt import PromptFuture
from odradek.runtime.turns import Turns
from odradek.security.principals import UNKNOWN_REQUESTER, Requester
from odradek.security.quotas import Quotas

if TYPE_CHECKING:
    from odradek.broker.coordinators import streams_topics, transaction_verifier
    from odradek.broker.coordinators.runtime import CoordinatorKind, CoordinatorRuntime
    from odradek.broker.instruments.record_traces import RecordTraces
    from odradek.broker.requests.access import Access
    from odradek.broker.share.partitions import SharePartitions
    from odradek.groups.service import GroupService
    from odradek.groups.shard.machine import GroupMachine
    from odradek.groups.share.state import ShareStates
    from odradek.protocol.acls import RequiredAcl
    from odradek.security.authorizer import Authorizer
    from odradek.security.principal_builder import BuiltPrincipals
    from odradek.transactions.machine import TransactionMachine
    from odradek.transactions.service import TransactionCoordinator
    from odradek.transactions.verification import TransactionVerifier
else:
    streams_topics = lazy("odradek.broker.coordinators.streams_topics")
    transaction_verifier = lazy("odradek.broker.coordinators.transaction_verifier")


@dataclass(frozen=True, slots=True)
class CoordinatorKinds:
    """The kinds of coordinators that this broker has; each is made when it is needed for the first time."""

    groups: CoordinatorKind[GroupMachine, GroupService]
    transactions: CoordinatorKind[TransactionMachine, TransactionCoordinator]
    shares: CoordinatorKind[ShareStates, SharePartitions]


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """The broker's parts, wired by `app.py`. `config` is replaced when a dynamic setting changes."""

    config: BrokerConfig
    runtime: Runtime
    cluster: ClusterLink
    replicas: ReplicaManager
    fetch_sessions: FetchSessions
    producer_ids: ProducerIds
    coordinators: CoordinatorRuntime
    kinds: CoordinatorKinds
    quotas: Quotas
    moves: LogDirMoves
    authorizer: Authorizer | None = None
    """The authorizer of clients; None: they may do everything."""
    principals: BuiltPrincipals | None = None
    """The builder of clients' principals; None for Kafka's own rule."""
    gate: RequestGate | None = None
    """Carries out what the authorizer decides, before handlers."""
    audit: RequestWatcher | None = None
    """The watcher of requests for the audit; None without an audit."""
    traffic: BrokerTraffic = field(init=False, default_factory=BrokerTraffic)
    """The traffic of each topic."""
    elections: ElectionFigures = field(init=False)
    """Elections that this broker made as the controller."""
    logins: LoginFigures = field(init=False, default_factory=LoginFigures)
    """SASL logins, by listener."""
    appends: SharedAppends = field(init=False)
    """Appends of small Produce requests."""
    requests: RequestFigures = field(init=False)
    """The durations of requests, by API."""
    regexes: RegexWorker = field(init=False, default_factory=RegexWorker)
    """Matches what clients list with expressions."""
    client_telemetry: ClientTelemetry = field(init=False)
    """Metrics that clients pushed."""
    traces: RecordTraces | None = None
    """Makes spans of traced records; None where no collector is set."""
    turns: Turns
    """Turns on the event loop, for handlers whose work grows with the request."""
    answer_room_bytes: Callable[[], int] = lambda: 2**31 - 1
    """Returns the bytes that a fetch may load: `queued.max.response.bytes` minus what clients have not read yet."""
    serve: Callable[[Connection, memoryview, Requester | None], Reply] = lambda connection, frame, requester: (
        None
    )
    """The dispatcher: serves a request frame as if it had come over the connection, from the requester if one is given."""
    _verifier: TransactionVerifier | None = None
    _streams_topics: streams_topics.StreamsTopics | None = None

    def __post_init__(self) -> None:
        self.elections = ElectionFigures(self.runtime.clock.monotonic)
        clock = self.runtime.clock
        slow = SlowRequests(self.config.metrics.slow_request_ms, clock.wall_ms)
        self.requests = RequestFigures(clock.monotonic, slow)
        self.appends = SharedAppends(wall_ms=clock.wall_ms, monotonic=clock.monotonic, figures=self.requests)
        self.client_telemetry = ClientTelemetry(self.runtime, self.config.metrics)

    @property
    def image(self) -> ClusterImage:
        return self.cluster.image

    @property
    def controller(self) -> Controller:
        """The cluster's controller, if it is this broker; NOT_CONTROLLER otherwise."""
        return self.cluster.controller

    @property
    def groups(self) -> GroupService:
        return self.kinds.groups.service

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.kinds.transactions.service

    @property
    def shares(self) -> SharePartitions:
        return self.kinds.shares.service

    @property
    def verifier(self) -> TransactionVerifier:
        """The verifier that asks transaction coordinators, on this broker and on others."""
        if self._verifier is None:
            self._verifier = transaction_verifier.ClusterVerifier(
                self.coordinators, lambda: self.transactions, lambda: self.config
            )
        return self._verifier

    @property
    def streams_topics(self) -> streams_topics.StreamsTopics:
        """The creation of the internal topics of streams groups."""
        if self._streams_topics is None:
            self._streams_topics = streams_topics.StreamsTopics(
                self.cluster.create_topics,
                lambda group_id, error: self.groups.note_streams_topics(group_id, error),
            )
            self.coordinators.on_close(self._streams_topics.close)
        return self._streams_topics


class RequestContext(NamedTuple):
    """The client of a request, its connection, and the version of the API. A named tuple, because each request has one, and a
    frozen dataclass takes three times as long to make."""

    connection: Connection
    api_version: int
    client_id: str
    correlation_id: int = -1
    requester: Requester = UNKNOWN_REQUESTER
    access: Access | None = None
    """The client's rights, for handlers that check them themselves; None without an authorizer."""

    @classmethod
    def of(cls, connection: Connection, header: RequestHeader) -> Self:
        """Returns the context of a request that came over a connection, with the requester of the connection."""
        return cls(
            connection,
            header.api_version,
            header.client_id or "",
            header.correlation_id,
            connection.requester,
        )

    @property
    def principal(self) -> str:
        """The principal of the client, as `Type:name`. In a forwarded request it is the principal of the
        original client."""
        return self.requester.principal

    @property
    def client_host(self) -> str:
        """The client's address, IPv4-mapped ones in their IPv4 form."""
        return self.requester.host

    @property
    def listener_name(self) -> str:
        return self.connection.listener.name

    def address_of(self, broker: BrokerImage) -> tuple[str, int] | None:
        """Returns the address at which this client reaches a broker: the one that the broker advertises for the client's
        listener, with the host that the client already reaches if it names none. None without such a listener (as in Kafka).
        """
        connection = self.connection
        if (
            connection.listener.name == broker.control_plane
        ):  # another broker passed it on; this listener is not for clients
            return broker.host or connection.local_host, broker.port
        if broker.broker_id == connection.listener.broker_id:
            return connection.listener.advertised or (connection.local_host, connection.local_port)
        endpoint = broker.endpoints.get(connection.listener.name)
        if endpoint is None:
            return None
        return endpoint[0] or connection.local_host, endpoint[1]


@dataclass(frozen=True, slots=True)
class HeldResponse:
    """A response that comes later, before which no other request of the connection is served."""

    response: Awaitable[Message | None]


class LaterResponse(NamedTuple):
    """A response that is made of what comes later, an exception included. No future of the response itself is made: a rebalance
    brings requests of all members of a group at once."""

    source: PromptFuture[Any]
    make: Callable[[PromptFuture[Any]], Message]

    def __await__(self) -> Generator[object, None, Message]:
        return self.source.map(self.make).__await__()


FEW_ELEMENTS: Final = 1000
"""The elements of all arrays of a message: one with more is read, or written, in steps (`large_messages.py`)."""
Encode = Callable[[Message], Chunks | HeldReply]
"""Makes the bytes of a response; what the response refuses goes into the log."""


ShortWay = Callable[
    [BrokerContext, Connection, RequestHeader, memoryview, int, Encode],
    Chunks | HeldReply | PromptFuture[Chunks | None] | None,
]
"""Serves a frame whose body starts at a position, and returns the bytes of its answer, now or later; later requests of the
connection wait for a `HeldReply`. None, with nothing done, for a request that only `ApiHandler.handle` serves. The last
argument makes the bytes of a response."""


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """An API of this broker: `handle` returns the response, a promise of it, or None for no response (acks=0)."""

    api_key: int
    handle: Callable[
        [BrokerContext, RequestContext, Any],
        Message | Awaitable[Message] | LaterResponse | HeldResponse | None,
    ]
    is_quick: bool = False
    """Whether `handle` is a coroutine that most often ends without waiting, and waits for nothing but its turns (`Turn`) before
    it waits for anything else: its first step is made outside a task, so it must not ask for the current one. Later requests of
    the connection wait for its end.
    """
    holds: bool = False
    """Whether later requests of the connection wait while a future of this one is pending: for long polls."""
    short: ShortWay | None = None
    """A shorter way for the most frequent small requests. It is not taken where there is an authorizer, an audit or a quota."""


class RequestGate(Protocol):
    """The gate before the handlers where there is an authorizer (`broker/access/gate.py`)."""

    def guarded(self, api: Api, served: ApiHandler) -> ApiHandler:
        """Returns the handler, preceded by the checks of its API."""

    def report_to(self, report: Callable[[Api, RequestContext, RequiredAcl, str], None]) -> None:
        """Sets the receiver of refusals."""


class RequestWatcher(Protocol):
    """The watcher that notes requests for the audit (`broker/audit/watching.py`)."""

    def watched(self, api: Api, served: ApiHandler) -> ApiHandler:
        """Returns the handler; what is asked of it is noted."""

    def refused(self, api: Api, context: RequestContext, required: RequiredAcl, name: str) -> None:
        """Notes a refusal of the authorizer."""

    def page_refused(self, host: str, path: str) -> None:
        """Notes that the metrics listener refused a page to a peer without a valid token."""
