"""Fetch: offsets in and out of range, epochs, limits, sessions, unknown topics."""

from uuid import UUID

from tests.differential.asker import Asker
from tests.differential.requests import batch, fetch, make_topic, metadata, produce

from odradek.protocol.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

SOME_ID = UUID(int=0xABCDEF)


def script(peer: Asker) -> None:
    make_topic(peer, "fe-one", 2)
    for value in ("a", "b", "c"):
        peer.quietly(produce("fe-one", batch(value, value * 2)), 12)
    _offsets(peer)
    _limits(peer)
    _targets(peer)
    _sessions(peer)


def _offsets(peer: Asker) -> None:
    for version in (4, 5, 7, 8, 9, 10, 11, 12):
        peer.ask(f"version {version}", fetch("fe-one", 4), version)
    for offset in (0, 1, 5, 6, 7, -1, -2, 1 << 62):
        peer.ask(f"from {offset}", fetch("fe-one", offset, max_wait_ms=0), 12)
    for epoch in (0, 5, -2):
        peer.ask(f"leader epoch {epoch}", fetch("fe-one", 0, epoch=epoch, max_wait_ms=0), 12)
    for epoch in (0, 5, -2):
        peer.ask(f"last epoch {epoch}", fetch("fe-one", 4, last_epoch=epoch, max_wait_ms=0), 12)
    peer.ask("last epoch 0 past the end", fetch("fe-one", 9, last_epoch=0, max_wait_ms=0), 12)
    for epoch in (0, 5):
        empty = fetch("fe-one", 0, partition=1, last_epoch=epoch, max_wait_ms=0)
        peer.ask(f"last epoch {epoch} of an empty partition", empty, 12)
    peer.ask("committed only", fetch("fe-one", 0, isolation_level=1), 12)
    peer.ask("an isolation that does not exist", fetch("fe-one", 0, isolation_level=9), 12)


def _limits(peer: Asker) -> None:
    peer.ask("one byte of a partition", fetch("fe-one", 0, partition_max_bytes=1), 12)
    peer.ask("one byte at all", fetch("fe-one", 0, max_bytes=1), 12)
    peer.ask("no byte at all", fetch("fe-one", 0, max_bytes=0, max_wait_ms=0), 12)
    peer.ask("fewer than none", fetch("fe-one", 0, partition_max_bytes=-1, max_wait_ms=0), 12)
    peer.ask("more than there is", fetch("fe-one", 0, min_bytes=1 << 20), 12)
    peer.ask("two and a half batches", fetch("fe-one", 0, partition_max_bytes=190), 12)
    peer.ask("as a follower", fetch("fe-one", 0, replica_id=1, max_wait_ms=0), 12)
    peer.ask("as a debugger", fetch("fe-one", 0, replica_id=-2, max_wait_ms=0), 12)


def _targets(peer: Asker) -> None:
    known = peer.quietly(metadata("fe-one")).topics[0].topic_id
    peer.ask("an unknown topic", fetch("fe-none", 0, max_wait_ms=0), 12)
    for partition in (2, -1):
        peer.ask(f"partition {partition}", fetch("fe-one", 0, partition=partition, max_wait_ms=0), 12)
    peer.ask("by id", _by_id((known, 0)))
    peer.ask("by an unknown id", _by_id((SOME_ID, 0)))
    peer.ask("by no id", _by_id((UUID(int=0), 0)))
    peer.ask("by a known and an unknown id", _by_id((known, 0), (SOME_ID, 0)))
    peer.ask("an unknown partition by id", _by_id((known, 7)))
    peer.ask("nothing", FetchRequest(max_wait_ms=0, min_bytes=1))


def _by_id(
    *wanted: tuple[UUID, int],
    session: tuple[int, int] = (0, -1),
    offset: int = 4,
    forget: list[ForgottenTopic] | None = None,
) -> FetchRequest:
    topics = [
        FetchTopic(
            topic_id=topic_id,
            partitions=[FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1000)],
        )
        for topic_id, partition in wanted
    ]
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=topics,
        session_id=session[0],
        session_epoch=session[1],
        forgotten_topics_data=forget or [],
    )


def _sessions(peer: Asker) -> None:
    known = peer.quietly(metadata("fe-one")).topics[0].topic_id

    def hide(response: object) -> object:
        return response.replace(session_id=int(response.session_id > 0))

    opened = peer.ask("opening a session", _by_id((known, 0), (known, 1), session=(0, 0)), only=hide)
    number = opened.session_id
    peer.ask("nothing new in the session", _by_id(session=(number, 1)), only=hide)
    peer.ask("another offset in the session", _by_id((known, 0), session=(number, 2), offset=0), only=hide)
    peer.ask("an epoch too high", _by_id(session=(number, 9)), only=hide)
    peer.ask("an epoch too low", _by_id(session=(number, 1)), only=hide)
    forgotten = ForgottenTopic(topic_id=known, partitions=[0])
    peer.ask("forgetting a partition", _by_id(session=(number, 3), forget=[forgotten]), only=hide)
    peer.ask("an unknown id in the session", _by_id((SOME_ID, 0), session=(number, 4)), only=hide)
    peer.ask("closing the session", _by_id(session=(number, -1)), only=hide)
    peer.ask("after it was closed", _by_id(session=(number, 5)), only=hide)
    peer.ask("a session that never was", _by_id(session=(12345, 3)), only=hide)
