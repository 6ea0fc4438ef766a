"""The node of a broker that stays in the registry while it is down: /brokers/known/N.

It names the broker's data directories, each with the generation that its disk has, and whether the broker's
last life ended with a clean shutdown. A directory that is named and not there any more was lost or swapped;
one whose disk has an older generation is an older copy. So the node is how a broker that lost its disk learns
of it (decision 0027).

Each generation has a token that no one else draws: two processes on copies of one disk raise it to the same number, and still
know each other apart.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple, TypedDict

from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.ids import BrokerId
from odradek.registry import Create, Node, Operation, Put, Registry

KNOWN: Final = "/brokers/known"


class Generation(NamedTuple):
    """How often a data directory's generation was raised, and the token of the last time."""

    number: int
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownBroker:
    """A broker that was registered once."""

    broker_id: BrokerId
    directories: Mapping[str, Generation]
    """Generations by the id of the directory."""
    is_clean: bool = False
    """True if its last run ended with a clean shutdown."""

    @property
    def path(self) -> str:
        return f"{KNOWN}/{self.broker_id}"

    def data(self) -> bytes:
        directories = {
            directory_id: [generation.number, generation.token]
            for directory_id, generation in self.directories.items()
        }
        return json.dumps({"directories": directories, "clean": self.is_clean}).encode()


class _StoredBroker(TypedDict):
    """The JSON of a node. Each directory has the number and the token of its generation."""

    directories: dict[str, tuple[int, str]]
    clean: bool


def known_broker_from(broker_id: BrokerId, data: bytes) -> KnownBroker:
    """Returns the document that a node holds."""
    stored: _StoredBroker = json.loads(data)
    return KnownBroker(
        broker_id=broker_id,
        directories={
            directory_id: Generation(number, token)
            for directory_id, (number, token) in stored["directories"].items()
        },
        is_clean=stored["clean"],
    )


async def known_brokers(registry: Registry) -> dict[BrokerId, KnownBroker]:
    """Returns all brokers that were ever registered, live or not, by id."""
    brokers = {}
    for name in await registry.children(KNOWN):
        node = await registry.get(f"{KNOWN}/{name}")
        if node is not None:
            broker_id = BrokerId(int(name))
            brokers[broker_id] = known_broker_from(broker_id, node.data)
    return dict(sorted(brokers.items()))


class DiskClaim:
    """One step of a broker's node, from what this broker knows of it to `after`. No one else may step in between."""

    def __init__(self, *, version: int | None, after: KnownBroker, own_tokens: Collection[str] = ()) -> None:
        """`version`: of the node as this broker knows it, None when there was none. `own_tokens`: a step that a former life of
        this broker began may come late; it has these.
        """
        self.version: Final = version
        self.after: Final = after
        self._own_tokens: Final = frozenset(own_tokens)

    async def operations(self, registry: Registry) -> list[Operation]:
        """Returns the operations of the step; none when it is taken already, by a commit whose outcome was unknown.

        DUPLICATE_BROKER_REGISTRATION when another process took one: it runs on a copy of this broker's data, or this one does.
        """
        node = await registry.get(self.after.path)
        data = self.after.data()
        if node is not None and node.data == data:
            return []
        if node is None and self.version is None:
            return [Create(path=self.after.path, data=data)]
        if node is not None and (node.version == self.version or self._is_own(node)):
            return [Put(path=self.after.path, data=data, version=node.version)]
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"another process was started on a copy of the data of broker {self.after.broker_id}, and is this broker now: "
            "only one of them may run. Keep the one whose data is newer",
        )

    def _is_own(self, node: Node) -> bool:
        known = known_broker_from(self.after.broker_id, node.data)
        tokens = {generation.token for generation in known.directories.values()}
        return bool(tokens & self._own_tokens)

    async def committed_version(self, registry: Registry) -> int:
        """Returns the version of the node, after the step was taken."""
        node = await registry.get(self.after.path)
        return -1 if node is None or node.data != self.after.data() else node.version
