"""Our records are Kafka's: those of `kafka_4_3_1_records.json` are from the `__consumer_offsets` of Apache Kafka 4.3.1.

A classic member was there first; a static member of the consumer protocol with a regular expression upgraded the group, and
left for a while; then the classic one left.
"""

import json
from pathlib import Path
from uuid import UUID

import pytest

from odradek.groups.consumer import formats
from odradek.groups.consumer.group import ConsumerGroup
from odradek.groups.consumer.member import ConsumerMemberMetadata, CurrentAssignment, MemberState
from odradek.groups.modern.records import GroupRecord
from odradek.protocol import MalformedMessage, UnknownVersion

RECORDS = [
    (bytes.fromhex(key), None if value is None else bytes.fromhex(value))
    for key, value in json.loads((Path(__file__).parent / "kafka_4_3_1_records.json").read_text())
]


@pytest.mark.parametrize(("key", "value"), RECORDS)
def test_what_kafka_wrote_is_read_and_written_the_same(key, value):
    record = formats.RECORDS.read(key, value)
    assert record.group_id == "golden-group"
    assert record.encoded() == (key, value)


def test_the_values_mean_the_same_to_us():
    """Members and their parts survive our own types too."""
    kinds = set()
    for key, value in RECORDS:
        record = formats.RECORDS.read(key, value)
        kinds.add(type(record.value))
        if isinstance(record.value, formats.MemberValue):
            assert ConsumerMemberMetadata.of(record.value).value() == record.value
        if isinstance(record.value, formats.CurrentValue):
            current = CurrentAssignment.of(record.value)
            assert CurrentAssignment.of(current.value()) == current
    assert kinds >= {
        formats.GroupValue,
        formats.MemberValue,
        formats.TargetValue,
        formats.TargetMemberValue,
        formats.CurrentValue,
        formats.RegexValue,
    }


def test_a_group_is_made_of_kafkas_log():
    group = ConsumerGroup("golden-group")
    for key, value in RECORDS:
        group.replay(formats.RECORDS.read(key, value))
    (member,) = group.members.values()
    assert group.epoch == 3
    assert group.assignment_epoch == 2
    assert member.is_away
    assert group.statics == {"instance-1": member.member_id}
    assert member.profile.regex == "(^golden.*)"
    assert member.profile.assignor == "range"
    assert group.subscribed_topics == {"golden", "golden-b"}
    assert sum(map(len, group.targets[member.member_id].values())) == 2
    assert set(group.owners.values()) == {member.member_id}


def test_records_of_kafka_4_0_are_understood():
    """It wrote no epochs for partitions, kept partition counts in a record of their own, and knew no timestamps."""
    topic = UUID(int=1)
    value = formats.CurrentValue(
        member_epoch=4,
        assigned_partitions=[formats.CurrentPartitions(topic_id=topic, partitions=[0, 2])],
    )
    assert CurrentAssignment.of(value).assigned == {topic: {0: 4, 2: 4}}
    group = ConsumerGroup("g")
    key = formats.PartitionMetadataKey(group_id="g")
    metadata = formats.TopicMetadata(topic_id=topic, topic_name="t", num_partitions=3)
    legacy = GroupRecord(key, formats.PartitionMetadataValue(topics=[metadata]))
    assert formats.RECORDS.read(*legacy.encoded()) == legacy
    group.replay(legacy)
    assert group.has_partition_metadata
    assert GroupRecord(key, None).encoded() in list(group.tombstones())


def test_a_state_that_only_a_newer_broker_knows_is_unknown():
    assert CurrentAssignment.of(formats.CurrentValue(state=5)).state is MemberState.UNKNOWN


def test_what_cannot_be_read_is_said_to_be_so():
    key, value = RECORDS[0]
    with pytest.raises(UnknownVersion):
        formats.RECORDS.read(key, b"\x00\x07" + value[2:])
    with pytest.raises(MalformedMessage):
        formats.RECORDS.read(key, value[:-3])
