"""ListOffsets, OffsetForLeaderEpoch and DeleteRecords: special times, epochs, what is out of range or unknown."""

from tests.differential.asker import Asker
from tests.differential.requests import A_TIME, batch, list_offsets, make_topic, produce

from odradek.protocol.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from odradek.protocol.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

SPECIAL = (-1, -2, -3, -4, -5, -6, -7)
AT = {
    "before all": A_TIME - 1,
    "the first": A_TIME,
    "between two": A_TIME + 50,
    "the last": A_TIME + 201,
    "after all": A_TIME + 999,
    "zero": 0,
}


def script(peer: Asker) -> None:
    make_topic(peer, "of-one", 2, retention_ms="-1")
    for number in range(3):
        peer.quietly(produce("of-one", batch(f"{number}", f"{number}b", timestamp=A_TIME + 100 * number)), 12)
    _listing(peer)
    _epochs(peer)
    _deleting(peer)


def _listing(peer: Asker) -> None:
    for version in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11):
        for when in SPECIAL:
            peer.ask(f"time {when}, version {version}", list_offsets("of-one", (0, when)), version)
    for what, when in AT.items():
        peer.ask(f"at {what}", list_offsets("of-one", (0, when)))
    for when in (-1, -2, -3, A_TIME):
        peer.ask(f"time {when} of an empty partition", list_offsets("of-one", (1, when)))
    peer.ask("committed only", list_offsets("of-one", (0, -1), isolation=1))
    for epoch in (0, 5, -2):
        peer.ask(f"leader epoch {epoch}", list_offsets("of-one", (0, -1), epoch=epoch))
    peer.ask("an unknown topic", list_offsets("of-none", (0, -1)))
    peer.ask("unknown partitions", list_offsets("of-one", (2, -1), (-1, -1)))
    peer.ask("a partition twice", list_offsets("of-one", (0, -1), (0, -2)))
    peer.ask("as a follower", list_offsets("of-one", (0, -1)).replace(replica_id=1))
    peer.ask("nothing", list_offsets("of-one"))


def _epochs(peer: Asker) -> None:
    def end_of(
        epoch: int, *, current: int = -1, partition: int = 0, name: str = "of-one", replica: int = -2
    ) -> OffsetForLeaderEpochRequest:
        wanted = OffsetForLeaderPartition(
            partition=partition, current_leader_epoch=current, leader_epoch=epoch
        )
        topics = [OffsetForLeaderTopic(topic=name, partitions=[wanted])]
        return OffsetForLeaderEpochRequest(replica_id=replica, topics=topics)

    peer.ask("end of epoch 0, version 2", end_of(0, replica=-2), 2)
    peer.ask("end of epoch 0, version 3", end_of(0), 3)
    for epoch in (0, 1, 9, -1, -2):
        peer.ask(f"end of epoch {epoch}", end_of(epoch))
    for current in (0, 1):
        peer.ask(f"end of epoch 0 when {current} is current", end_of(0, current=current))
    peer.ask("end of epoch 0 where nothing is", end_of(0, partition=1))
    peer.ask("end of epoch 0 of an unknown partition", end_of(0, partition=7))
    peer.ask("end of epoch 0 of an unknown topic", end_of(0, name="of-none"))
    peer.ask("end of no epoch", OffsetForLeaderEpochRequest(replica_id=-2))


def _deleting(peer: Asker) -> None:
    def before(offset: int, *, partition: int = 0, name: str = "of-one") -> DeleteRecordsRequest:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        return DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[wanted])], timeout_ms=5000
        )

    for version in (0, 1, 2):
        peer.ask(f"deleting before 1, version {version}", before(1), version)
    peer.ask("deleting before 3", before(3))
    peer.ask("what is the first now", list_offsets("of-one", (0, -2)))
    peer.ask("what was deleted is not found by time", list_offsets("of-one", (0, A_TIME)))
    peer.ask("deleting before 2", before(2))
    peer.ask("deleting before what is not there yet", before(7))
    peer.ask("deleting before -5", before(-5))
    peer.ask("deleting from an empty partition", before(-1, partition=1))
    peer.ask("deleting from an unknown partition", before(0, partition=7))
    peer.ask("deleting from an unknown topic", before(0, name="of-none"))
    peer.ask("deleting all", before(-1))
    peer.ask("where it begins in the end", list_offsets("of-one", (0, -2)))
    peer.ask("the largest time of nothing", list_offsets("of-one", (0, -3)))
    peer.ask("deleting from nothing", DeleteRecordsRequest(topics=[], timeout_ms=5000))
