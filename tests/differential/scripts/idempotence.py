"""InitProducerId and idempotent batches: duplicates, gaps, epochs, several batches in flight."""

from tests.differential.asker import Asker
from tests.differential.requests import batch, fetch, make_topic, produce

from odradek.protocol.messages.transactions.init_producer_id import InitProducerIdRequest

UNKNOWN_ID = 987_654


def script(peer: Asker) -> None:
    make_topic(peer, "id-one", 2)
    first = _producers(peer)
    _sequences(peer, first)
    _epochs(peer)
    _strangers(peer)
    peer.ask("what is stored", fetch("id-one", 0), 12)


def _init(**more: object) -> InitProducerIdRequest:
    values = {"transactional_id": None, "transaction_timeout_ms": 60_000} | more
    return InitProducerIdRequest(**values)


def _producers(peer: Asker) -> int:
    peer.until(lambda reply: reply.error_code == 0, _init())
    for version in (0, 1, 2, 3, 4):
        peer.ask(f"an id, version {version}", _init(), version)
    response = peer.ask("an id", _init())
    peer.ask("another id", _init())
    peer.ask("an id without a timeout", _init(transaction_timeout_ms=-1))
    peer.ask("an id again", _init(producer_id=response.producer_id, producer_epoch=0))
    peer.ask("an id with an epoch alone", _init(producer_epoch=3))
    peer.ask("an id for an empty transactional id", _init(transactional_id=""))
    return int(response.producer_id)


def _send(
    peer: Asker, step: str, *values: str, who: int, epoch: int = 0, sequence: int = 0, partition: int = 0
) -> None:
    data = batch(*values, producer_id=who, producer_epoch=epoch, base_sequence=sequence)
    peer.ask(step, produce("id-one", data, partition=partition), 12)


def _sequences(peer: Asker, who: int) -> None:
    _send(peer, "the first", "a", "b", who=who)
    _send(peer, "the first again", "a", "b", who=who)
    _send(peer, "the next", "c", who=who, sequence=2)
    _send(peer, "a gap", "e", who=who, sequence=4)
    _send(peer, "part of what is there", "b", who=who, sequence=1)
    _send(peer, "more than what is there", "a", "b", "c", who=who)
    for number in range(3, 8):
        _send(peer, f"number {number}", "x", who=who, sequence=number)
    _send(peer, "one of the last five again", "x", who=who, sequence=4)
    _send(peer, "older than the last five", "c", who=who, sequence=2)
    _send(peer, "from zero again", "z", who=who)
    _send(peer, "on another partition from zero", "p", who=who, partition=1)
    _send(peer, "a sequence below zero", "n", who=who, sequence=-1)
    _send(peer, "an epoch below zero", "n", who=who, epoch=-1, sequence=8)


def _epochs(peer: Asker) -> None:
    who = peer.quietly(_init()).producer_id
    _send(peer, "epoch 0", "a", who=who)
    _send(peer, "epoch 1 not from zero", "b", who=who, epoch=1, sequence=1)
    _send(peer, "epoch 1", "b", who=who, epoch=1)
    _send(peer, "epoch 0 once more", "c", who=who, sequence=1)
    _send(peer, "epoch 0 again", "a", who=who)
    _send(peer, "epoch 3", "d", who=who, epoch=3)


def _strangers(peer: Asker) -> None:
    _send(peer, "an id that no broker gave", "s", who=UNKNOWN_ID)
    _send(peer, "an id that no broker gave, not from zero", "s", who=UNKNOWN_ID + 1, sequence=5)
    two = batch("1", producer_id=UNKNOWN_ID, producer_epoch=0, base_sequence=1) + batch(
        "2", producer_id=UNKNOWN_ID, producer_epoch=0, base_sequence=2
    )
    peer.ask("two batches of one producer", produce("id-one", two), 12)
