"""DescribeClientQuotas and AlterClientQuotas: what may be set for whom, and how it is found again."""

from tests.differential.asker import Asker

from odradek.protocol.messages.quotas.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from odradek.protocol.messages.quotas.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

EXACT, DEFAULT, ANY = 0, 1, 2
Entity = dict[str, str | None]


def script(peer: Asker) -> None:
    _setting(peer)
    peer.until(lambda response: len(response.entries or []) >= 5, DescribeClientQuotasRequest(components=[]))
    _finding(peer)
    _wrong(peer)
    _removing(peer)


def alter(entity: Entity, validate_only: bool = False, **values: float | None) -> AlterClientQuotasRequest:
    """Values to set, None to remove them."""
    ops = [OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()]
    kinds = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return AlterClientQuotasRequest(entries=[EntryData(entity=kinds, ops=ops)], validate_only=validate_only)


def find(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    wanted = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in components]
    return DescribeClientQuotasRequest(components=wanted, strict=strict)


def _setting(peer: Asker) -> None:
    peer.ask("only tried", alter({"user": "qu-tried"}, True, producer_byte_rate=1.0))
    for version in (0, 1):
        peer.ask(
            f"for a user, version {version}",
            alter({"user": "qu-a"}, producer_byte_rate=1000.0 + version),
            version,
        )
    peer.ask("for a client", alter({"client-id": "qu-c"}, consumer_byte_rate=2000.0, request_percentage=50.0))
    peer.ask("for a user's client", alter({"user": "qu-a", "client-id": "qu-c"}, producer_byte_rate=5.0))
    peer.ask("for all users", alter({"user": None}, controller_mutation_rate=3.0))
    peer.ask("for an address", alter({"ip": "127.0.0.9"}, connection_creation_rate=9.0))


def _finding(peer: Asker) -> None:
    for version in (0, 1):
        peer.ask(f"all, version {version}", find(), version)
    peer.ask("nothing else", find(strict=True))
    peer.ask("a user", find(("user", EXACT, "qu-a")))
    peer.ask("a user and nothing else", find(("user", EXACT, "qu-a"), strict=True))
    peer.ask("any user", find(("user", ANY, None)))
    peer.ask("all users", find(("user", DEFAULT, None)))
    peer.ask("a user's client", find(("user", EXACT, "qu-a"), ("client-id", EXACT, "qu-c")))
    peer.ask("an address", find(("ip", EXACT, "127.0.0.9")))
    peer.ask("one that is not there", find(("user", EXACT, "qu-none")))


def _wrong(peer: Asker) -> None:
    peer.ask("an unknown kind to find", find(("nonsense", EXACT, "x")))
    peer.ask("an unknown way to match", find(("user", 9, "x")))
    peer.ask("an exact match of nothing", find(("user", EXACT, None)))
    peer.ask("any with a name", find(("user", ANY, "x")))
    peer.ask("a kind twice to find", find(("user", EXACT, "x"), ("user", ANY, None)))
    peer.ask("an address and a user to find", find(("ip", ANY, None), ("user", ANY, None)))
    peer.ask("an unknown kind", alter({"nonsense": "x"}, producer_byte_rate=1.0))
    peer.ask("no entity", alter({}, producer_byte_rate=1.0))
    peer.ask("an empty name", alter({"user": ""}, producer_byte_rate=1.0))
    peer.ask("an unknown key", alter({"user": "qu-x"}, nonsense=1.0))
    peer.ask("a key of addresses for a user", alter({"user": "qu-x"}, connection_creation_rate=1.0))
    peer.ask("a key of users for an address", alter({"ip": "127.0.0.9"}, producer_byte_rate=1.0))
    peer.ask("an address that is none", alter({"ip": "not an address"}, connection_creation_rate=1.0))
    peer.ask(
        "an address and a user", alter({"ip": "127.0.0.9", "user": "qu-x"}, connection_creation_rate=1.0)
    )
    peer.ask("zero", alter({"user": "qu-x"}, producer_byte_rate=0.0))
    peer.ask("below zero", alter({"user": "qu-x"}, producer_byte_rate=-1.0))
    peer.ask("a part of a byte", alter({"user": "qu-x"}, producer_byte_rate=1.5, validate_only=True))
    peer.ask("nothing to set", alter({"user": "qu-x"}))
    peer.ask("no entries", AlterClientQuotasRequest(entries=[]))
    twice = alter({"user": "qu-x"}, producer_byte_rate=1.0).entries[0]
    peer.ask("an entity twice", AlterClientQuotasRequest(entries=[twice, twice], validate_only=True))


def _removing(peer: Asker) -> None:
    peer.ask("removing what is not set", alter({"user": "qu-a"}, consumer_byte_rate=None))
    peer.ask("removing", alter({"user": "qu-a"}, producer_byte_rate=None))
    for entity, keys in (
        ({"client-id": "qu-c"}, ("consumer_byte_rate", "request_percentage")),
        ({"user": "qu-a", "client-id": "qu-c"}, ("producer_byte_rate",)),
        ({"user": None}, ("controller_mutation_rate",)),
        ({"ip": "127.0.0.9"}, ("connection_creation_rate",)),
    ):
        peer.quietly(alter(entity, **dict.fromkeys(keys)))
    peer.until(lambda response: not response.entries, find())
    peer.ask("when all are removed", find())
