"""CreateTopics, CreatePartitions, DeleteTopics, with every kind of bad input."""

from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import create, make_topic, metadata, topic, wait_until_gone, wait_until_led

from odradek.protocol.messages.topics.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from odradek.protocol.messages.topics.create_topics import CreatableReplicaAssignment, CreatableTopic
from odradek.protocol.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState

BAD_NAMES = {
    "empty": "",
    "a dot": ".",
    "two dots": "..",
    "250 long": "x" * 250,
    "a space": "a b",
    "a slash": "a/b",
    "not ASCII": "ü",
}


def script(peer: Asker) -> None:
    _creating(peer)
    _assigning(peer)
    _growing(peer)
    _deleting(peer)


def _creating(peer: Asker) -> None:
    for version in (2, 4, 5, 6, 7):
        peer.ask(f"a topic, version {version}", create(topic(f"tp-v{version}", 2)), version)
    peer.ask("only tried", create(topic("tp-tried", 2), validate_only=True))
    peer.ask("only tried, so it is not there", metadata("tp-tried"))
    peer.ask("with settings", create(topic("tp-set", retention_ms="1000", cleanup_policy="compact")))
    peer.ask("numbers by default", create(topic("tp-defaults", -1, -1)))
    peer.ask("one that exists", create(topic("tp-set")))
    peer.ask("one that exists, only tried", create(topic("tp-set"), validate_only=True))
    peer.ask("the same name twice", create(topic("tp-twice"), topic("tp-twice")))
    peer.ask("a good one beside a bad one", create(topic("tp-good"), topic("tp bad")))
    peer.ask(
        "a name that collides, a dot for an underscore", create(topic("tp.collides"), topic("tp_collides"))
    )
    for what, name in BAD_NAMES.items():
        peer.ask(f"a name that is bad: {what}", create(topic(name)))
    for count in (0, -2):
        peer.ask(f"{count} partitions", create(topic("tp-no", count)))
    for copies in (0, -2, 2, 32767):
        peer.ask(f"{copies} copies", create(topic("tp-no", 1, copies)))
    peer.ask("an unknown setting", create(topic("tp-no", no_such="1")))
    peer.ask("a number that is none", create(topic("tp-no", retention_ms="soon")))
    peer.ask("a number out of bounds", create(topic("tp-no", segment_bytes="1")))
    peer.ask("a word that is none", create(topic("tp-no", cleanup_policy="delete,burn")))
    peer.ask("a boolean that is none", create(topic("tp-no", preallocate="yes")))
    peer.ask("a setting that is null", create(topic("tp-no", retention_ms=None)))
    peer.ask("a setting that is empty", create(topic("tp-no", retention_ms="")))
    peer.ask("more in-sync copies than copies", create(topic("tp-isr", min_insync_replicas="3")))
    peer.ask("no topics", create())


def _assigning(peer: Asker) -> None:
    def assigned(
        name: str, *brokers: list[int], first: int = 0, partitions: int = -1, copies: int = -1
    ) -> CreatableTopic:
        placed = [
            CreatableReplicaAssignment(partition_index=first + number, broker_ids=ids)
            for number, ids in enumerate(brokers)
        ]
        return CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=copies, assignments=placed
        )

    peer.ask("placed by hand", create(assigned("tp-placed", [1], [1])))
    peer.ask("placed on an unknown broker", create(assigned("tp-no", [9])))
    peer.ask("placed twice on one broker", create(assigned("tp-no", [1, 1])))
    peer.ask("placed nowhere", create(assigned("tp-no", [])))
    peer.ask("placed, but not from partition 0", create(assigned("tp-no", [1], first=1)))
    peer.ask("placed and counted", create(assigned("tp-no", [1], partitions=1)))
    peer.ask("placed and copied", create(assigned("tp-no", [1], copies=1)))


def _growing(peer: Asker) -> None:
    def grow(
        *wanted: tuple[str, int], validate_only: bool = False, placed: list[list[int]] | None = None
    ) -> CreatePartitionsRequest:
        places = None if placed is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in placed]
        topics = [CreatePartitionsTopic(name=name, count=count, assignments=places) for name, count in wanted]
        return CreatePartitionsRequest(topics=topics, timeout_ms=10_000, validate_only=validate_only)

    make_topic(peer, "tp-grow", 2)
    peer.ask("growing, only tried", grow(("tp-grow", 4), validate_only=True))
    peer.ask("growing", grow(("tp-grow", 3)))
    wait_until_led(peer, "tp-grow", 3)
    peer.ask("what grew", metadata("tp-grow"))
    for version in (0, 1, 2, 3):
        peer.ask(f"growing to the same, version {version}", grow(("tp-grow", 3)), version)
    for count in (2, 0, -1):
        peer.ask(f"shrinking to {count}", grow(("tp-grow", count)))
    peer.ask("growing an unknown topic", grow(("tp-none", 3)))
    peer.ask("growing a topic twice", grow(("tp-grow", 4), ("tp-grow", 5)))
    peer.ask("growing, placed by hand", grow(("tp-grow", 4), placed=[[1]]))
    peer.ask("growing, placed on an unknown broker", grow(("tp-grow", 5), placed=[[9]]))
    peer.ask("growing, placed too often", grow(("tp-grow", 5), placed=[[1], [1]]))
    peer.ask("growing, placed with more copies", grow(("tp-grow", 5), placed=[[1, 1]]))
    peer.ask("growing nothing", grow())


def _deleting(peer: Asker) -> None:
    def by_name(*names: str) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=10_000)

    def by_id(*ids: UUID, name: str | None = None) -> DeleteTopicsRequest:
        topics = [DeleteTopicState(name=name, topic_id=topic_id) for topic_id in ids]
        return DeleteTopicsRequest(topics=topics, timeout_ms=10_000)

    for version in (1, 2, 3, 4):
        name = make_topic(peer, f"tp-away-v{version}")
        names = DeleteTopicsRequest(topic_names=[name, "tp-none"], timeout_ms=10_000)
        peer.ask(f"deleting, version {version}", names, version)
    made_topic = make_topic(peer, "tp-away")
    peer.ask("deleting, version 5", DeleteTopicsRequest(topic_names=[made_topic], timeout_ms=10_000), 5)
    wait_until_gone(peer, made_topic)
    peer.ask("deleting what is gone", by_name(made_topic))
    peer.ask("deleting by name", by_name(make_topic(peer, "tp-away-2")))
    wait_until_gone(peer, "tp-away-2")
    make_topic(peer, "tp-away-3")
    known = peer.quietly(metadata("tp-away-3")).topics[0].topic_id
    peer.ask("deleting by id and name", by_id(known, name="tp-away-3"))
    peer.ask("deleting an id twice", by_id(known, known))
    peer.ask("deleting by id", by_id(known))
    wait_until_gone(peer, "tp-away-3")
    peer.ask("deleting an id that is gone", by_id(known))
    peer.ask("deleting neither", by_id(UUID(int=0)))
    peer.ask("deleting a name twice", by_name("tp-set", "tp-set"))
    peer.ask("deleting a bad name", by_name("a b"))
    peer.ask("deleting nothing", by_name())
    make_topic(peer, "tp-again")
    peer.quietly(by_name("tp-again"))
    wait_until_gone(peer, "tp-again")
    peer.ask("created again under the same name", create(topic("tp-again")))
