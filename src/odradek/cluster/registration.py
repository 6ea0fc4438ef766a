"""A broker's registration: the document at /brokers/ids/N, which lives as long as the broker's session.

The number that the store gives the node when it is made is the broker's epoch: every start of a broker has a higher one, and
what an earlier incarnation still has under way is recognised by it.

A node that is made again begins at version 0 again, so a version does not identify the registration that a
caller is about to remove. The node at /brokers/lives/N does: each registration writes it, and each removal
checks it (`RegistrationRemoval`).

That node stays, with the broker's last data: a broker that is down is still one of the cluster, until it is
unregistered (`unregistered`). What earlier versions wrote there is empty.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NotRequired, TypedDict

from odradek.cluster.image import BrokerImage
from odradek.cluster.known_brokers import DiskClaim
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import (
    Check,
    Create,
    Delete,
    Node,
    Operation,
    Put,
    Registry,
    RegistryConflict,
    RegistryError,
)

BROKERS: Final = "/brokers/ids"
LIVES: Final = "/brokers/lives"
CLUSTER_ID: Final = "/cluster_id"
SPEAKS: Final = (2, 2)
"""The lowest and the highest version of what brokers say to each other beyond Kafka's own messages: updates of the image,
reports, forwarded requests. A cluster works while the ranges of its brokers overlap. Since version 2 quotas, users, tokens and
settings are in parts."""
_ATTEMPTS: Final = 10
_UNREGISTERED: Final = b"unregistered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A broker's own data; the addresses are explained in `BrokerImage`."""

    broker_id: BrokerId
    directory_id: str
    """The id of its data directory: only the holder of the directory's lock may register for it."""
    host: str
    port: int
    endpoints: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    rack: str | None = None
    is_cordoned: bool = False
    control_plane: str | None = None
    speaks: tuple[int, int] = SPEAKS

    @property
    def path(self) -> str:
        return f"{BROKERS}/{self.broker_id}"

    @property
    def lives_path(self) -> str:
        return f"{LIVES}/{self.broker_id}"

    def data(self) -> bytes:
        return json.dumps(
            {
                "directory": self.directory_id,
                "host": self.host,
                "port": self.port,
                "endpoints": {name: list(address) for name, address in self.endpoints.items()},
                "rack": self.rack,
                "cordoned": self.is_cordoned,
                "speaks": list(self.speaks),
                "control_plane": self.control_plane,
            }
        ).encode()

    def image(self, epoch: int) -> BrokerImage:
        return BrokerImage(
            broker_id=self.broker_id,
            host=self.host,
            port=self.port,
            rack=self.rack,
            epoch=epoch,
            endpoints=self.endpoints,
            is_cordoned=self.is_cordoned,
            control_plane=self.control_plane,
        )


class _StoredRegistration(TypedDict):
    """The JSON of a node."""

    directory: str
    host: str
    port: int
    endpoints: dict[str, tuple[str, int]]
    rack: str | None
    cordoned: bool
    speaks: tuple[int, int]
    control_plane: NotRequired[str | None]


def registration_from(broker_id: BrokerId, data: bytes) -> Registration:
    """Returns the document that a node holds."""
    stored: _StoredRegistration = json.loads(data)
    return Registration(
        broker_id=broker_id,
        directory_id=stored["directory"],
        host=stored["host"],
        port=stored["port"],
        endpoints={name: (host, port) for name, (host, port) in stored["endpoints"].items()},
        rack=stored["rack"],
        is_cordoned=stored["cordoned"],
        speaks=(stored["speaks"][0], stored["speaks"][1]),
        control_plane=stored.get("control_plane"),
    )


async def register(
    registry: Registry,
    registration: Registration,
    *,
    claim: DiskClaim | None = None,
    earlier: Collection[int] | None = None,
    dead: int | None = None,
) -> int:
    """Registers the broker, or updates its registration; returns its epoch. The disks in `claim` are part of it.

    A node that an earlier incarnation left, whose session has not run out yet, is replaced: its directory id
    is ours, so its process is dead. But `earlier` are the sessions of a process that was registered before: a
    node of any other session is then of a process that was started on a copy of its data, and the two would
    replace each other again and again. `dead` is a session whose process is known to be dead: its node is
    replaced whatever its data, for a disk may be lost with its broker. Raises DUPLICATE_BROKER_REGISTRATION
    when another broker has the id, INVALID_REGISTRATION when a live broker does not speak our versions,
    RegistryError.
    """
    await _check_versions(registry, registration)
    for _ in range(_ATTEMPTS):
        claimed = [] if claim is None else await claim.operations(registry)
        lives = await registry.get(registration.lives_path)
        node = await registry.get(registration.path)
        is_ours = node is not None and node.owner == registry.session_id
        if node is not None and is_ours and node.data == registration.data() and not claimed:
            return node.created
        if node is not None and earlier is not None and node.owner not in (registry.session_id, *earlier):
            raise _duplicate(registration, node, "on a copy of this broker's data")
        operations = [*claimed, *_steps(node, lives, registration, registry.session_id, dead)]
        try:
            await registry.commit(operations)
        except RegistryConflict:
            await registry.sync()
    raise RegistryError(
        f"cannot register broker {registration.broker_id}: {registration.path} is being changed by others all the time"
    )


def _steps(
    node: Node | None, lives: Node | None, registration: Registration, session_id: int, dead: int | None
) -> list[Operation]:
    path, data = registration.path, registration.data()
    if node is not None and node.owner == session_id:
        return [Put(path=path, data=data, version=node.version)]
    if node is not None and node.owner != dead:
        other = registration_from(registration.broker_id, node.data)
        if other.directory_id != registration.directory_id:
            raise _duplicate(registration, node, "with data of its own")
    begun: Operation = Create(path=registration.lives_path, data=data)
    if lives is not None:
        begun = Put(path=registration.lives_path, data=data, version=lives.version)
    ended = [] if node is None else [Delete(path=path, version=node.version)]
    return [begun, *ended, Create(path=path, data=data, ephemeral=True)]


def _duplicate(registration: Registration, node: Node, how: str) -> KafkaError:
    other = registration_from(registration.broker_id, node.data)
    return KafkaError(
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        f"broker {registration.broker_id} is running already, at {other.host or 'this machine'}:{other.port}, "
        f"{how}: give this broker another broker.id (and an empty data directory)",
    )


class RegistrationRemoval(NamedTuple):
    """A registration as it was read, and what removes it in a commit, but no registration that came after it."""

    registration: Registration
    epoch: int
    operations: tuple[Operation, ...]


async def removal(registry: Registry, broker: BrokerId) -> RegistrationRemoval | None:
    """Returns None when the broker is not registered. RegistryError."""
    lives = await registry.get(f"{LIVES}/{broker}")  # first: a life that begins after this fails the check
    node = await registry.get(f"{BROKERS}/{broker}")
    if node is None or lives is None:
        return None
    guard = Check(path=f"{LIVES}/{broker}", version=lives.version)
    return RegistrationRemoval(
        registration_from(broker, node.data),
        node.created,
        (guard, Delete(path=f"{BROKERS}/{broker}", version=node.version)),
    )


async def registered(registry: Registry) -> dict[BrokerId, tuple[Registration, int]]:
    """Returns all live brokers, with their epochs, by id."""
    registrations = {}
    for name in await registry.children(BROKERS):
        node = await registry.get(f"{BROKERS}/{name}")
        if node is not None:
            broker_id = BrokerId(int(name))
            registrations[broker_id] = (registration_from(broker_id, node.data), node.created)
    return dict(sorted(registrations.items()))


async def registered_before(registry: Registry, live: Collection[BrokerId]) -> dict[BrokerId, Registration]:
    """Returns the brokers of the cluster that are not among the `live` ones: they were registered, and no one unregistered
    them."""
    last_words = {}
    for name in await registry.children(LIVES):
        broker_id = BrokerId(int(name))
        node = None if broker_id in live else await registry.get(f"{LIVES}/{name}")
        if node is not None and node.data != _UNREGISTERED:
            last_words[broker_id] = _last_words(broker_id, node.data)
    return dict(sorted(last_words.items()))


def _last_words(broker_id: BrokerId, data: bytes) -> Registration:
    if data:
        return registration_from(broker_id, data)
    return Registration(broker_id=broker_id, directory_id="", host="", port=0)


async def unregistration(registry: Registry, broker: BrokerId) -> tuple[Operation, ...] | None:
    """Returns the operations that remove a broker that is down from the cluster; None when it is none of its brokers.

    The node stays, so that its version keeps growing: see above. INVALID_REQUEST for a broker that runs.
    """
    lives = await registry.get(f"{LIVES}/{broker}")  # first: a life that begins after this fails the commit
    if await registry.get(f"{BROKERS}/{broker}") is not None:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker} is running, and would register again at once: stop it first",
        )
    if lives is None or lives.data == _UNREGISTERED:
        return None
    return (Put(path=f"{LIVES}/{broker}", data=_UNREGISTERED, version=lives.version),)


async def _check_versions(registry: Registry, registration: Registration) -> None:
    lowest, highest = registration.speaks
    for broker_id, (other, _) in (await registered(registry)).items():
        if broker_id == registration.broker_id:
            continue
        if other.speaks[0] > highest:
            advice = "this one is too old: start it with the version that the others run"
        elif other.speaks[1] < lowest:
            advice = "this one is too new: upgrade one version at a time, all brokers to one in between first"
        else:
            continue
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION,
            f"broker {broker_id}, at {other.host or 'this machine'}:{other.port}, speaks versions {other.speaks[0]} to "
            f"{other.speaks[1]} between brokers, broker {registration.broker_id} {lowest} to {highest}: {advice}",
        )


async def join_cluster(
    registry: Registry, *, known: str | None, may_found: bool, new_id: Callable[[], str]
) -> str:
    """Returns the id of the cluster that the registry holds, which must be the one that this broker's data belongs to.

    An empty registry gets an id: `known` if there is one, else a new one. But if this broker's data is not new, an empty
    registry that is not its own (`may_found` false) has lost its content or is the wrong one: then INCONSISTENT_CLUSTER_ID,
    before anything is lost.
    """
    while True:
        node = await registry.get(CLUSTER_ID)
        if node is not None:
            stored = node.data.decode()
            if known is not None and known != stored:
                raise KafkaError(
                    ErrorCode.INCONSISTENT_CLUSTER_ID,
                    f"this broker's data belongs to cluster {known}, the registry to cluster {stored}: "
                    "check zookeeper.connect (or odradek.registry.dir) and log.dirs",
                )
            return stored
        if known is not None and not may_found:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"this broker's data belongs to cluster {known}, but the registry knows no cluster: it is the wrong one, or "
                "its content was lost. Restore it from a backup; with an empty one the cluster would forget all topics",
            )
        cluster_id = known if known is not None else new_id()
        try:
            await registry.commit([Create(path=CLUSTER_ID, data=cluster_id.encode())])
        except RegistryConflict:
            await registry.sync()
