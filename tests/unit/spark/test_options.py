"""Options are checked when the query is made, and every refusal says what would be right."""

from __future__ import annotations

import pytest

from odradek.model.errors import ConfigError
from odradek.model.ids import TopicPartition
from odradek.spark.options.option_table import OPTIONS, Decoding, NoNewerRecord, OnDecodeError, Use
from odradek.spark.options.options import (
    ReadOptions,
    read_options,
    write_options,
)
from odradek.spark.options.positions import (
    EARLIEST,
    LATEST,
    AtGroup,
    AtOffsets,
    AtTime,
    AtTimes,
    UniformPosition,
)

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SUBSCRIBED = {**SERVERS, "subscribe": "flights"}


def read(use: Use = Use.BATCH_READ, **options: str) -> ReadOptions:
    return read_options({**SUBSCRIBED, **options}, use)


def refusal(options: dict[str, str], use: Use = Use.BATCH_READ) -> str:
    with pytest.raises(ConfigError) as caught:
        (read_options if use & Use.READ else write_options)(options, use)
    return str(caught.value)


def test_the_smallest_read_needs_servers_and_a_topic_and_reads_everything() -> None:
    options = read()
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092"}
    assert options.topics.names == ("flights",)
    assert options.starting == UniformPosition(bound=EARLIEST)
    assert options.ending == UniformPosition(bound=LATEST)
    assert options.fail_on_data_loss
    assert options.projection.columns == (
        "key", "value", "topic", "partition", "offset", "timestamp", "timestampType",
    )  # fmt: skip


def test_a_stream_starts_at_the_end_unless_asked_otherwise() -> None:
    assert read(Use.STREAM_READ).starting == UniformPosition(bound=LATEST)
    assert read(Use.STREAM_READ, startingOffsets="earliest").starting == UniformPosition(bound=EARLIEST)


def test_option_names_are_looked_up_without_regard_to_case() -> None:
    options = read_options(
        {k.lower(): v for k, v in SUBSCRIBED.items()} | {"failondataloss": "FALSE"}, Use.BATCH_READ
    )
    assert not options.fail_on_data_loss


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("subscibe", "subscribe"),
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataloss_", "failOnDataLoss"),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("valueDecoder", "valueDecode"),
    ],
)
def test_an_unknown_option_is_an_error_that_names_the_nearest_known_one(typo: str, meant: str) -> None:
    refusal_text = refusal({**SUBSCRIBED, typo: "x"})
    assert typo in refusal_text
    assert f"did you mean {meant}?" in refusal_text


def test_an_option_like_no_other_lists_what_there_is() -> None:
    refusal_text = refusal({**SUBSCRIBED, "zzzzzz": "x"})
    assert all(option.key in refusal_text for option in OPTIONS.options)


def test_servers_are_asked_for_when_missing() -> None:
    assert "kafka.bootstrap.servers is missing" in refusal({"subscribe": "flights"})


@pytest.mark.parametrize(
    "ways",
    [{}, {"subscribe": "a", "assign": '{"a": [0]}'}, {"subscribe": "a", "subscribePattern": "b"}],
)
def test_topics_are_chosen_in_exactly_one_way(ways: dict[str, str]) -> None:
    assert "exactly one of" in refusal({**SERVERS, **ways})


def test_several_topics_are_separated_by_commas_in_any_order() -> None:
    assert read(subscribe=" b, a,b ").topics.names == ("a", "b")


def test_a_topic_that_cannot_exist_is_refused_with_the_reason() -> None:
    assert "may hold only ASCII letters" in refusal({**SERVERS, "subscribe": "no topic"})


def test_assigned_partitions_are_read_from_json() -> None:
    options = read_options({**SERVERS, "assign": '{"b": [1], "a": [2, 0]}'}, Use.BATCH_READ)
    assert options.topics.partitions == (
        TopicPartition("a", 0),
        TopicPartition("a", 2),
        TopicPartition("b", 1),
    )


@pytest.mark.parametrize(
    "text", ["", "[", "[0]", "{}", '{"a": 0}', '{"a": [-1]}', '{"a": ["0"]}', '{"a": [true]}']
)
def test_a_malformed_assignment_is_refused(text: str) -> None:
    assert "assign" in refusal({**SERVERS, "assign": text})


def test_a_pattern_that_is_no_regular_expression_is_refused() -> None:
    assert "not a regular expression" in refusal({**SERVERS, "subscribePattern": "("})


def test_offsets_as_json_allow_the_numbers_for_earliest_and_latest() -> None:
    options = read(Use.STREAM_READ, startingOffsets='{"flights": {"0": 23, "1": -1, "2": -2}}')
    assert options.starting == AtOffsets(
        offsets={
            TopicPartition("flights", 0): 23,
            TopicPartition("flights", 1): LATEST,
            TopicPartition("flights", 2): EARLIEST,
        }
    )


@pytest.mark.parametrize(
    "text", ["first", '{"a": {"0": -3}}', '{"a": {"x": 1}}', '{"a": {"0": "1"}}', '{"a": 7}', "{"]
)
def test_malformed_offsets_are_refused(text: str) -> None:
    assert "startingOffsets" in refusal({**SUBSCRIBED, "startingOffsets": text})


@pytest.mark.parametrize("text", ["latest", '{"flights": {"0": -1}}'])
def test_a_batch_cannot_start_at_the_end(text: str) -> None:
    assert "nothing to read" in refusal({**SUBSCRIBED, "startingOffsets": text})


@pytest.mark.parametrize("text", ["earliest", '{"flights": {"0": -2}}'])
def test_a_batch_cannot_end_at_the_beginning(text: str) -> None:
    assert "nothing to read" in refusal({**SUBSCRIBED, "endingOffsets": text})


def test_a_time_wins_over_times_and_times_over_offsets_as_in_sparks_connector() -> None:
    given = {
        "startingTimestamp": "1000",
        "startingOffsetsByTimestamp": '{"flights": {"0": 2000}}',
        "startingOffsets": "earliest",
    }
    assert read(**given).starting == AtTime(timestamp_ms=1000)
    del given["startingTimestamp"]
    assert read(**given).starting == AtTimes(timestamps_ms={TopicPartition("flights", 0): 2000})


def test_a_start_after_the_last_record_is_an_error_unless_asked_to_take_the_end() -> None:
    assert read().no_newer_record is NoNewerRecord.ERROR
    assert read(startingOffsetsByTimestampStrategy="latest").no_newer_record is NoNewerRecord.LATEST


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    refusal_text = refusal({**SUBSCRIBED, name: "latest"}, Use.STREAM_READ)
    assert refusal_text == f"option {name} does not apply to a streaming read, only to a batch read"


def test_options_that_do_nothing_here_are_named_in_a_warning() -> None:
    options = read(maxOffsetsPerTrigger="5", groupIdPrefix="mine")
    assert options.warnings == (
        "option maxOffsetsPerTrigger is ignored in a batch read",
        "option groupIdPrefix is ignored in a batch read",
    )


def test_a_write_option_on_a_read_is_refused() -> None:
    assert "does not apply to a batch read" in refusal({**SUBSCRIBED, "topic": "flights"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("maxOffsetsPerTrigger", "-5"),
        ("maxOffsetsPerTrigger", "many"),
        ("minPartitions", "0"),
        ("fetchOffset.numRetries", "-1"),
        ("startingTimestamp", "yesterday"),
        ("failOnDataLoss", "yes"),
        ("valueDecode", "avro"),
        ("maxTriggerDelay", "soon"),
        ("columns", "value,size"),
        ("columns", "value,value"),
        ("columns", " "),
    ],
)
def test_a_value_that_makes_no_sense_is_refused_under_the_options_name(name: str, value: str) -> None:
    assert name in refusal({**SUBSCRIBED, name: value}, Use.STREAM_READ)


def test_durations_have_units() -> None:
    assert read(Use.STREAM_READ).max_trigger_delay_ms == 900_000
    assert read(Use.STREAM_READ, maxTriggerDelay="90 s").max_trigger_delay_ms == 90_000
    assert read(Use.STREAM_READ, maxTriggerDelay="250ms").max_trigger_delay_ms == 250


def test_columns_come_in_the_order_asked_for() -> None:
    assert read(columns="timestamptype, Value").projection.columns == ("timestampType", "value")


def test_headers_are_a_column_only_when_asked_for() -> None:
    assert read(includeHeaders="true").projection.columns[-1] == "headers"
    assert read(columns="headers").projection.columns == ("headers",)
    assert "leaves headers out" in refusal({**SUBSCRIBED, "columns": "value", "includeHeaders": "true"})


def test_json_needs_a_schema_and_a_schema_needs_json() -> None:
    projection = read(valueDecode="JSON", valueSchema="a INT", decodeErrors="null").projection
    assert (projection.value, projection.value_schema) == (Decoding.JSON, "a INT")
    assert projection.on_error is OnDecodeError.NULL
    assert "needs the option valueSchema" in refusal({**SUBSCRIBED, "valueDecode": "json"})
    assert "only of use with keyDecode=json" in refusal({**SUBSCRIBED, "keySchema": "a INT"})


def test_settings_prefixed_kafka_reach_the_client_without_the_prefix() -> None:
    assert read(**{"kafka.client.id": "me"}).client["client.id"] == "me"


@pytest.mark.parametrize("text", ["group:lag", " Group: lag "])
def test_a_read_may_start_where_a_group_stands(text: str) -> None:
    for use in (Use.BATCH_READ, Use.STREAM_READ):
        assert read(use, startingOffsets=text).starting == AtGroup(group="lag")


def test_a_read_that_resumes_knows_its_sink_and_where_to_start_without_a_decision() -> None:
    options = read(Use.STREAM_READ, resume="true", sinkId="s", startingOffsets="earliest")
    assert options.starting == AtGroup(group="__odradek_sink.s", otherwise=UniformPosition(bound=EARLIEST))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"startingOffsets": "group:"}, "names no group"),
        ({"startingOffsets": "groups:a"}, "is earliest, latest, group:NAME or JSON"),
        ({"resume": "true"}, "set the option sinkId"),
        ({"resume": "true", "sinkId": "s", "startingOffsets": "group:g"}, "give one of them"),
        ({"sinkId": "s"}, "sinkId of a read is only of use with resume=true"),
        ({"publishOffsets": " "}, "publishOffsets names a consumer group"),
    ],
)
def test_a_start_that_cannot_be_is_refused(options: dict[str, str], reason: str) -> None:
    assert reason in refusal({**SUBSCRIBED, **options}, Use.STREAM_READ)


def test_only_a_start_may_be_a_groups() -> None:
    assert "is earliest, latest or JSON" in refusal({**SUBSCRIBED, "endingOffsets": "group:g"})


@pytest.mark.parametrize(
    "name", ["kafka.key.deserializer", "kafka.auto.offset.reset", "kafka.enable.auto.commit"]
)
def test_client_settings_that_the_source_decides_are_refused(name: str) -> None:
    assert f"option {name} cannot be set" in refusal({**SUBSCRIBED, name: "x"})


def test_a_write_takes_its_topic_from_the_option_and_marks_streams_only() -> None:
    stream = write_options({**SERVERS, "topic": "out", "checkpointLocation": "/c"}, Use.STREAM_WRITE)
    assert (stream.topic, stream.delivery_headers) == ("out", True)
    assert not write_options(SERVERS, Use.BATCH_WRITE).delivery_headers
    assert not write_options({**SERVERS, "deliveryHeaders": "false"}, Use.STREAM_WRITE).delivery_headers


def test_exactly_once_takes_its_name_from_the_sink_id_or_the_query() -> None:
    given = {**SERVERS, "delivery": "exactly_once"}
    named = write_options({**given, "sinkId": "s", "queryName": "q"}, Use.STREAM_WRITE)
    assert named.exactly_once is not None
    assert (named.exactly_once.sink_id, named.delivery_headers) == ("s", False)
    by_query = write_options({**given, "queryName": "q"}, Use.STREAM_WRITE).exactly_once
    assert by_query is not None
    assert by_query.sink_id == "q"


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"delivery": "exactly_once"}, "needs a name that stays the same from run to run"),
        ({"delivery": "exactly_once", "sinkId": "a~b"}, "letters, digits, dots, dashes and underscores"),
        ({"delivery": "exactly_once", "sinkId": "s" * 201}, "1 to 200"),
        (
            {"delivery": "exactly_once", "sinkId": "s", "publishOffsets": " "},
            "publishOffsets names a consumer group",
        ),
        ({"delivery": "exactly_once", "sinkId": "s", "kafka.transactional.id": "t"}, "set sinkId"),
        ({"takeOver": "true"}, "only of use with delivery=exactly_once"),
        ({"publishOffsets": "g"}, "only of use with delivery=exactly_once: give it to readStream"),
        ({"delivery": "twice"}, "at_least_once, exactly_once"),
    ],
)
def test_an_exactly_once_write_that_cannot_be_is_refused(options: dict[str, str], reason: str) -> None:
    assert reason in refusal({**SERVERS, **options}, Use.STREAM_WRITE)


@pytest.mark.parametrize(
    "options",
    [
        {"startingTimestamp": str(1 << 63)},
        {"startingOffsetsByTimestamp": '{"t": {"0": 9223372036854775808}}'},
    ],
)
def test_a_time_that_no_broker_takes_is_refused(options: dict[str, str]) -> None:
    with pytest.raises(
        ConfigError, match=rf"option {next(iter(options))} .*(64 bits|{1 << 63}, which is too large)"
    ):
        read(Use.BATCH_READ, **options)


def test_dead_letters_need_a_topic_of_their_own() -> None:
    with pytest.raises(ConfigError, match="topic and deadLetterTopic are both out"):
        write_options({**SERVERS, "topic": "out", "deadLetterTopic": "out"}, Use.STREAM_WRITE)
