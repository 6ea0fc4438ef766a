"""Where reading may start: the ends of a partition, points in time, and offsets that are not there."""

from __future__ import annotations

import asyncio
import warnings

import aiokafka
import confluent_kafka as ck
import pytest
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.interop import logins

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

STAMPS = [1_700_000_000_000 + 1000 * n for n in range(10)]


@pytest.fixture
def stamped(topic, clients, row):
    """A topic whose partition 0 holds ten records, one a second; offset 4 has the latest stamp."""
    name = topic(partitions=2, **{"retention.ms": "-1"})
    stamps = [*STAMPS[:4], STAMPS[9] + 60_000, *STAMPS[5:]]
    rows = [row(value=b"%d" % n, timestamp_ms=stamp) for n, stamp in enumerate(stamps)]
    for sent_row in rows:  # a batch each, so that the time index has something to say
        clients["confluent-kafka"].produce(name, [sent_row])
    return name


def _confluent(bootstrap, **more):
    settings = {**logins.librdkafka(bootstrap), "group.id": "g", "enable.auto.commit": False, "log_level": 2}
    return ck.Consumer({**settings, **more})


def test_librdkafka_sees_both_ends_and_points_in_time(bootstrap, stamped):
    consumer = _confluent(bootstrap)
    try:
        assert consumer.get_watermark_offsets(ck.TopicPartition(stamped, 0), timeout=60) == (0, 10)
        assert consumer.get_watermark_offsets(ck.TopicPartition(stamped, 1), timeout=60) == (0, 0)
        asked = {STAMPS[0] - 5: 0, STAMPS[2]: 2, STAMPS[2] + 1: 3, STAMPS[3] + 1: 4, STAMPS[9] + 1: 4}
        for stamp, offset in asked.items():
            offsets = consumer.offsets_for_times([ck.TopicPartition(stamped, 0, stamp)], timeout=60)
            assert offsets[0].offset == offset, stamp
        late = consumer.offsets_for_times([ck.TopicPartition(stamped, 0, STAMPS[9] + 99_000)], timeout=60)
        assert late[0].offset in {-1, 10}  # librdkafka's word for the end differs between its versions
    finally:
        consumer.close()


def test_kafka_python_sees_both_ends_and_points_in_time(bootstrap, stamped):
    consumer = kafka.KafkaConsumer(**logins.kafka_python(bootstrap), group_id=None)
    place, empty = kafka.TopicPartition(stamped, 0), kafka.TopicPartition(stamped, 1)
    try:
        assert consumer.beginning_offsets([place, empty]) == {place: 0, empty: 0}
        assert consumer.end_offsets([place, empty]) == {place: 10, empty: 0}
        offsets = consumer.offsets_for_times({place: STAMPS[2] + 1, empty: 0})
        assert (offsets[place].offset, offsets[place].timestamp) == (3, STAMPS[3])
        assert offsets[empty] is None
        assert consumer.offsets_for_times({place: STAMPS[9] + 99_000})[place] is None
    finally:
        consumer.close()


def test_aiokafka_sees_both_ends_and_points_in_time(bootstrap, stamped):
    async def run():
        place, empty = aiokafka.TopicPartition(stamped, 0), aiokafka.TopicPartition(stamped, 1)
        async with aiokafka.AIOKafkaConsumer(**logins.aiokafka(bootstrap)) as consumer:
            consumer.assign([place, empty])
            assert await consumer.beginning_offsets([place, empty]) == {place: 0, empty: 0}
            assert await consumer.end_offsets([place, empty]) == {place: 10, empty: 0}
            offsets = await consumer.offsets_for_times({place: STAMPS[2] + 1, empty: 0})
            assert (offsets[place].offset, offsets[place].timestamp) == (3, STAMPS[3])
            assert offsets[empty] is None

    asyncio.run(run())


def test_kcat_sees_both_ends_and_points_in_time(clients, stamped):
    kcat = clients["kcat"]

    def query(stamp):
        return kcat.run("-Q", "-t", f"{stamped}:0:{stamp}").decode()

    assert f"{stamped} [0] offset 3" in query(STAMPS[2] + 1)
    assert f"{stamped} [0] offset 0" in query(-2)
    assert f"{stamped} [0] offset 10" in query(-1)
    read = kcat.run("-C", "-t", stamped, "-p", "0", "-o", f"s@{STAMPS[8]}", "-e", "-q", "-f", "%o\\n")
    assert read.split() == [b"4", b"5", b"6", b"7", b"8", b"9"]


def test_the_record_with_the_largest_timestamp_is_found(bootstrap, stamped):
    admin = AdminClient(logins.librdkafka(bootstrap))
    place, empty = ck.TopicPartition(stamped, 0), ck.TopicPartition(stamped, 1)

    def asked(where, spec):
        return admin.list_offsets({where: spec})[where].result(60)

    newest = asked(place, OffsetSpec.max_timestamp())
    assert (newest.offset, newest.timestamp) == (4, STAMPS[9] + 60_000)
    assert asked(empty, OffsetSpec.max_timestamp()).offset == -1
    assert asked(place, OffsetSpec.earliest()).offset == 0
    assert asked(place, OffsetSpec.latest()).offset == 10
    assert asked(place, OffsetSpec.for_timestamp(STAMPS[6])).offset == 4


def test_a_consumer_at_the_end_gets_only_what_comes_later(bootstrap, topic, clients, row):
    name = topic()
    clients["kafka-python"].produce(name, [row(value=b"before")])
    consumer = kafka.KafkaConsumer(**logins.kafka_python(bootstrap), group_id=None)
    try:
        place = kafka.TopicPartition(name, 0)
        consumer.assign([place])
        consumer.seek_to_end(place)
        assert consumer.position(place) == 1
        clients["kafka-python"].produce(name, [row(value=b"after")])
        records = []
        while not records:
            records = [record.value for batch in consumer.poll(timeout_ms=5000).values() for record in batch]
        assert records == [b"after"]
    finally:
        consumer.close()


def test_the_end_of_a_partition_is_announced_where_it_is(bootstrap, stamped):
    consumer = _confluent(bootstrap, **{"enable.partition.eof": True})
    try:
        consumer.assign([ck.TopicPartition(stamped, 0, 7)])
        seen = [consumer.poll(10) for _ in range(4)]
        assert [record.value() for record in seen[:3]] == [b"7", b"8", b"9"]
        assert seen[3].error().code() == ck.KafkaError._PARTITION_EOF
        assert seen[3].offset() == 10
    finally:
        consumer.close()


@pytest.mark.parametrize(("reset", "first"), [("earliest", 0), ("latest", None)])
def test_an_offset_beyond_the_end_makes_the_client_reset(bootstrap, stamped, clients, row, reset, first):
    consumer = _confluent(bootstrap, **{"auto.offset.reset": reset, "enable.partition.eof": True})
    try:
        consumer.assign([ck.TopicPartition(stamped, 0, 5000)])
        message = consumer.poll(15)
        if first is None:
            assert message.error().code() == ck.KafkaError._PARTITION_EOF
            assert message.offset() == 10
        else:
            assert (message.error(), message.offset()) == (None, first)
    finally:
        consumer.close()


def test_an_offset_beyond_the_end_is_an_error_for_who_wants_it(bootstrap, stamped):
    consumer = _confluent(bootstrap, **{"auto.offset.reset": "error"})
    try:
        consumer.assign([ck.TopicPartition(stamped, 0, 5000)])
        assert consumer.poll(15).error().code() == ck.KafkaError._AUTO_OFFSET_RESET
    finally:
        consumer.close()


def test_seek_goes_back_and_forth(bootstrap, stamped):
    consumer = kafka.KafkaConsumer(**logins.kafka_python(bootstrap), group_id=None, max_poll_records=1)
    try:
        place = kafka.TopicPartition(stamped, 0)
        consumer.assign([place])
        seen = []
        for offset in (8, 2, 9, 0):
            consumer.seek(place, offset)
            polled = []
            while not polled:
                polled = consumer.poll(timeout_ms=5000).get(place, [])
            seen.append(polled[0].offset)
        assert seen == [8, 2, 9, 0]
    finally:
        consumer.close()
