"""Produce: acknowledgements, broken and unusual batches, unknown topics, limits; and what is stored in the end."""

from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import batch, fetch, make_topic, metadata, produce, with_field
from tests.kit.requests import produce_request

from odradek.protocol.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from odradek.records import Codec

BY_NAME = 12
ATTRIBUTES, LENGTH, MAGIC, CRC, COUNT, LAST_DELTA, MAX_TIME, BASE_TIME = 21, 8, 16, 17, 57, 23, 35, 27
YEAR_5000_MS = 95_617_584_000_000


def script(peer: Asker) -> None:
    make_topic(peer, "pr-one", 2)
    make_topic(peer, "pr-strict", max_message_bytes="200", message_timestamp_after_max_ms="1000")
    make_topic(peer, "pr-stamped", message_timestamp_type="LogAppendTime")
    make_topic(peer, "pr-compacted", cleanup_policy="compact")
    _versions(peer)
    _targets(peer)
    _broken(peer)
    _limits(peer)
    _by_id(peer)
    _stored(peer)


def _ask(peer: Asker, step: str, name: str, records: object, **more: object) -> None:
    peer.ask(step, produce(name, records, **more), BY_NAME)


def _versions(peer: Asker) -> None:
    for version in (3, 5, 7, 8, 9, 10, 11, 12):
        peer.ask(f"version {version}", produce("pr-one", batch(f"v{version}")), version)
    for codec in Codec:
        _ask(peer, f"codec {codec.name}", "pr-one", batch("a", "b", codec=codec))
    _ask(peer, "acks of the leader", "pr-one", batch("leader"), acks=1)
    peer.unanswered(produce("pr-one", batch("no one asks"), acks=0), BY_NAME)
    _ask(peer, "after acks of no broker", "pr-one", batch("somebody asks"))
    for acks in (2, -2, 3):
        _ask(peer, f"acks {acks}", "pr-one", batch("no"), acks=acks)


def _targets(peer: Asker) -> None:
    _ask(peer, "an unknown topic", "pr-none", batch("no"))
    _ask(peer, "a bad name", "a b", batch("no"))
    for partition in (2, -1):
        _ask(peer, f"partition {partition}", "pr-one", batch("no"), partition=partition)
    _ask(peer, "an internal topic that does not exist", "__share_group_state", batch("no"))
    data = [
        PartitionProduceData(index=partition_data, records=batch(f"both {partition_data}"))
        for partition_data in (0, 7)
    ]
    both = [TopicProduceData(name="pr-one", partition_data=data)]
    peer.ask(
        "a partition beside an unknown one",
        ProduceRequest(acks=-1, timeout_ms=5000, topic_data=both),
        BY_NAME,
    )
    peer.ask("nothing", ProduceRequest(acks=-1, timeout_ms=5000), BY_NAME)
    _ask(peer, "not created by producing", "pr-none", batch("no"))
    peer.ask("it is still unknown", metadata("pr-none"))


def _broken(peer: Asker) -> None:
    good = batch("one", "two")
    _ask(peer, "no batch", "pr-one", None)
    _ask(peer, "an empty batch", "pr-one", b"")
    _ask(peer, "half a batch", "pr-one", good[:40])
    _ask(peer, "a batch and a half", "pr-one", good + good[:40])
    _ask(peer, "two batches", "pr-one", good + good)
    _ask(peer, "a wrong checksum", "pr-one", with_field(good, CRC, "i", 1, crc=False))
    for magic in (0, 1, 3):
        _ask(peer, f"magic {magic}", "pr-one", with_field(good, MAGIC, "b", magic))
    for codec in (5, 7):
        _ask(peer, f"codec {codec}", "pr-one", with_field(good, ATTRIBUTES, "h", codec))
    for count in (1, 3, 0, -1):
        _ask(peer, f"a count of {count} for two", "pr-one", with_field(good, COUNT, "i", count))
    for last in (0, 2, -1):
        _ask(peer, f"a last delta of {last} for two", "pr-one", with_field(good, LAST_DELTA, "i", last))
    _ask(peer, "snappy that is none", "pr-one", with_field(good, ATTRIBUTES, "h", 2))
    _ask(
        peer,
        "a control batch",
        "pr-one",
        batch("no", control=True, producer_id=1, producer_epoch=0, base_sequence=0),
    )
    _ask(peer, "a length that lies", "pr-one", with_field(good, LENGTH, "i", 1_000_000, crc=False))


def _limits(peer: Asker) -> None:
    _ask(peer, "too large for the topic", "pr-strict", batch("x" * 300))
    _ask(peer, "too large before it was compressed", "pr-strict", batch("x" * 300, codec=Codec.GZIP))
    _ask(peer, "too large for the broker", "pr-one", batch("x" * 1_100_000))
    _ask(peer, "from the future", "pr-strict", batch("later", timestamp=YEAR_5000_MS))
    _ask(peer, "from before time", "pr-one", batch("earlier", timestamp=-5))
    _ask(peer, "without a time", "pr-one", batch("no time", timestamp=-1))
    _ask(peer, "stamped by the broker", "pr-stamped", batch("now"))
    _ask(peer, "without a key where it is compacted", "pr-compacted", _without_key())
    _ask(peer, "with a key where it is compacted", "pr-compacted", batch("kept"))
    _ask(peer, "a tombstone", "pr-compacted", batch(None))


def _without_key() -> bytearray:
    from odradek.records import BatchBuilder

    builder = BatchBuilder()
    builder.append(1_600_000_000_000, None, b"no key")
    return builder.build()


def _by_id(peer: Asker) -> None:
    known = peer.quietly(metadata("pr-one")).topics[0].topic_id
    peer.ask("by id", produce_request(known, batch("by id")), 13)
    peer.ask("by an unknown id", produce_request(UUID(int=5), batch("by id")), 13)
    peer.ask("by no id", produce_request(UUID(int=0), batch("by id")), 13)


def _stored(peer: Asker) -> None:
    peer.ask("what is stored", fetch("pr-one", 0), 12)
    peer.ask("what is stored with the broker's time", fetch("pr-stamped", 0), 12)
    peer.ask("what is stored compacted", fetch("pr-compacted", 0), 12)
