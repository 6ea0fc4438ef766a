"""Our records are Kafka's: the bytes are from the `__consumer_offsets` of Apache Kafka 4.3.1."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.groups.shard.formats import (
    GROUP_METADATA_KEY,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    group_key,
    group_value,
    offset_key,
    offset_value,
    read,
    read_offset_value,
    version_of,
    versioned,
)
from odradek.groups.shard.offset_table import CommittedOffset
from odradek.model.errors import OdradekError
from odradek.model.ids import ZERO_UUID
from odradek.protocol import MalformedMessage, UnknownVersion
from odradek.protocol.schema import INT32_MAX, INT64_MAX

TOPIC_ID = UUID("4d691878-38a9-47af-a9ba-800aaed6d838")
MEMBER_ID = "instance-1-3cd42120-33ad-4c41-9554-9d4e969aceb3"
OFFSET_KEY = "0001000c676f6c64656e2d67726f75700006676f6c64656e00000000"
OFFSET_VALUE = (
    "00040000000000000005ffffffff0f736f6d65206d6574616461746100000001a1fa3fc5e3"
    "0100104d69187838a947afa9ba800aaed6d838"
)
TRANSACTIONAL_VALUE = "00040000000000000004ffffffff01000001a1fa3fcc6800"
GROUP_KEY = "0002000c676f6c64656e2d67726f7570"
EMPTY_GROUP = "0003000000000000ffffffff000001a1fa3fc50600000000"
GROUP = (
    "00030008636f6e73756d657200000001000572616e6765002f696e7374616e63652d312d33636434323132302d333361642d346334312d3935"
    "35342d396434653936396163656233000001a1fa3fc51000000001002f696e7374616e63652d312d33636434323132302d333361642d346334"
    "312d393535342d396434653936396163656233000a696e7374616e63652d31000d676f6c64656e2d636c69656e74000a2f3132372e302e302e"
    "31000493e00000afc80000001c0003000000010006676f6c64656e0000000000000000ffffffff00000000001e0000000000010006676f6c64"
    "656e00000002000000000000000100000000"
)


def test_an_offsets_key() -> None:
    assert offset_key("golden-group", "golden", 0).hex() == OFFSET_KEY
    key = read(OffsetCommitKey, bytes.fromhex(OFFSET_KEY))
    assert key == OffsetCommitKey(group="golden-group", topic="golden", partition=0)


def test_an_offset_with_its_topics_id() -> None:
    written = offset_value(
        offset=5, metadata="some metadata\0", commit_timestamp=0x1A1FA3FC5E3, topic_id=TOPIC_ID
    )  # the client that committed it counts C's final zero in
    assert written.hex() == OFFSET_VALUE
    assert read_offset_value(written, 9) == CommittedOffset(
        5, -1, "some metadata\0", 0x1A1FA3FC5E3, -1, TOPIC_ID, 9
    )


def test_an_offset_of_a_transaction() -> None:
    assert offset_value(offset=4, commit_timestamp=0x1A1FA3FCC68).hex() == TRANSACTIONAL_VALUE


def test_an_offset_with_a_retention_of_its_own_is_written_in_version_1() -> None:
    data = offset_value(offset=4, metadata="m", commit_timestamp=1, expire_timestamp=2)
    assert version_of(data) == 1
    assert read_offset_value(data, 7) == CommittedOffset(4, -1, "m", 1, 2, ZERO_UUID, 7)


@given(
    offset=st.integers(-1, INT64_MAX),
    leader_epoch=st.integers(-1, INT32_MAX),
    metadata=st.sampled_from(["", "m", "\0" * 3, "é" * 70]),
    commit_timestamp=st.integers(0, INT64_MAX),
    expire_timestamp=st.just(-1) | st.integers(0, INT64_MAX),
    topic_id=st.just(ZERO_UUID) | st.uuids(),
)
def test_the_short_way_of_plain_offsets_writes_and_reads_what_the_general_codec_does(
    *,
    offset: int,
    leader_epoch: int,
    metadata: str,
    commit_timestamp: int,
    expire_timestamp: int,
    topic_id: UUID,
) -> None:
    message = OffsetCommitValue(
        offset=offset,
        leader_epoch=-1 if expire_timestamp != -1 else leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=ZERO_UUID if expire_timestamp != -1 else topic_id,
    )
    general = versioned(message, 4 if expire_timestamp == -1 else 1)
    written = offset_value(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        commit_timestamp=commit_timestamp,
        expire_timestamp=expire_timestamp,
        topic_id=topic_id,
    )
    assert written == general
    assert read_offset_value(written, 3) == CommittedOffset(
        offset,
        message.leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        message.topic_id,
        3,
    )


@pytest.mark.parametrize("position", range(42))
def test_a_value_as_long_as_a_plain_offset_is_read_as_the_general_codec_reads_it(position: int) -> None:
    """Another byte at each position: a version, a length or a tag of its own, or another number."""
    plain = offset_value(offset=5, commit_timestamp=6, topic_id=TOPIC_ID)
    assert len(plain) == 42
    changed = plain[:position] + bytes([plain[position] ^ 2]) + plain[position + 1 :]
    try:
        general = read(OffsetCommitValue, changed)
    except OdradekError:
        with pytest.raises(OdradekError):
            read_offset_value(changed, 0)
        return
    read_back = read_offset_value(changed, 0)
    assert (read_back.offset, read_back.leader_epoch, read_back.metadata, read_back.topic_id) == (
        general.offset,
        general.leader_epoch,
        general.metadata,
        general.topic_id,
    )
    assert (read_back.commit_timestamp_ms, read_back.expire_timestamp_ms) == (
        general.commit_timestamp,
        general.expire_timestamp,
    )


def test_a_group_without_members() -> None:
    value = GroupMetadataValue(
        protocol_type="", generation=0, protocol=None, leader=None, current_state_timestamp=0x1A1FA3FC506
    )
    assert group_key("golden-group").hex() == GROUP_KEY
    assert group_value(value).hex() == EMPTY_GROUP


def test_a_group_with_a_static_member() -> None:
    value = read(GroupMetadataValue, bytes.fromhex(GROUP))
    (member,) = value.members
    assert (value.protocol_type, value.generation, value.protocol, value.leader) == (
        "consumer",
        1,
        "range",
        MEMBER_ID,
    )
    assert member == MemberMetadata(
        member_id=MEMBER_ID,
        group_instance_id="instance-1",
        client_id="golden-client",
        client_host="/127.0.0.1",
        rebalance_timeout=300_000,
        session_timeout=45_000,
        subscription=member.subscription,
        assignment=member.assignment,
    )
    assert group_value(value).hex() == GROUP


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_older_layouts_are_read(version: int) -> None:
    offset = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=9)
    assert read(OffsetCommitValue, versioned(offset, version)) == offset
    group = GroupMetadataValue(protocol_type="consumer", generation=3, protocol="p", leader="l")
    assert read(GroupMetadataValue, versioned(group, version)) == group


def test_what_cannot_be_read_is_said_to_be_so() -> None:
    with pytest.raises(UnknownVersion):
        read(OffsetCommitValue, b"\0\x09" + bytes(20))
    with pytest.raises(MalformedMessage):
        read(GroupMetadataKey, GROUP_METADATA_KEY.to_bytes(2, "big") + b"\0\x05ab")
    assert version_of(b"\0") == -1
