"""Which clients are asked for which metrics, which requests are accepted, and what is kept of what they push."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from odradek.broker.handlers.config_resources import incremental
from odradek.broker.telemetry.instances import ClientInstance, ClientInstances, check_instance_id
from odradek.broker.telemetry.series import ClientSeries, SeriesRoom, families_of, family_name
from odradek.broker.telemetry.subscriptions import ClientPattern, Subscribed, Subscriptions, TelemetryClient
from odradek.config.client_metrics import BadPattern, check_client_metrics
from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.protocol.messages.configs.incremental_alter_configs import AlterableConfig
from odradek.runtime.turns import in_one_go
from odradek.telemetry.exposition import OPEN_METRICS, written
from odradek.telemetry.otlp import OtlpPoint, PointKind

ID = UUID(int=7)
CLIENT = TelemetryClient(
    client_instance_id="AAAAAAAAAAAAAAAAAAAABw",
    client_id="loader-1",
    client_software_name="librdkafka",
    client_software_version="2.5.0",
    client_source_address="10.0.0.5",
    client_source_port="4711",
)
CLIENT_METRICS = 16


def metrics_of(**configs: Mapping[str, str]) -> Subscribed:
    return Subscriptions(configs).of(CLIENT)


def test_a_client_without_a_subscription_is_asked_for_nothing_at_the_default_interval() -> None:
    assert metrics_of() == Subscribed(metrics=(), interval_ms=300_000)
    assert not metrics_of().wants("org.apache.kafka.producer.record.send.total")


def test_a_client_gets_the_metrics_of_all_that_match_at_the_shortest_interval() -> None:
    subscribed = metrics_of(
        a={"metrics": "b.,a.", "interval.ms": "10000"},
        b={"metrics": "c.", "interval.ms": "5000", "match": "client_id=loader-.*"},
        other={"metrics": "*", "interval.ms": "100", "match": "client_id=reader"},
    )
    assert subscribed == Subscribed(metrics=("a.", "b.", "c."), interval_ms=5000)
    assert subscribed.wants("a.x")
    assert not subscribed.wants("x.a.")
    everything = metrics_of(a={"metrics": "a."}, b={"metrics": "*,b."})
    assert everything.metrics == ("*",)
    assert everything.wants("whatever")


@pytest.mark.parametrize(
    ("match", "is_matched"),
    [
        ("client_id=loader-1", True),
        ("client_id=loader", False),
        ("client_id=.*, client_software_name = lib.*", True),
        ("client_software_version=2\\.[5-9]\\..*", True),
        ("client_source_address=10\\.0\\..*,client_source_port=4711", True),
        ("client_source_address=10\\.0\\..*,client_source_port=1", False),
        ("client_instance_id=A+Bw", True),
        ("client_id=a=b", False),
    ],
)
def test_every_selector_must_match_the_whole_property(match: str, is_matched: bool) -> None:
    assert bool(metrics_of(a={"metrics": "*", "match": match}).metrics) is is_matched


def test_a_pattern_made_to_take_for_ever_does_not() -> None:
    pattern = ClientPattern("(a+)+b")
    assert not pattern.matches("a" * 1_000)
    assert not pattern.matches("a" * 100_000 + "b"), "ids beyond the bound match nothing"
    assert pattern.matches("aab")


@pytest.mark.parametrize(
    "pattern",
    [
        "client_id=(",
        "client_id=(?=a)",
        "client_id=(a)\\1",
        "client_id=((x{99}){99})?",
        "client_id=" + "x" * 300,
    ],
)
def test_what_no_pattern_can_be_is_refused_as_such(pattern: str) -> None:
    with pytest.raises(BadPattern):
        check_client_metrics({"match": pattern}, ClientPattern)


@pytest.mark.parametrize(
    "configs", [{"match": "client_id"}, {"match": "name=x"}, {"interval.ms": "99"}, {"unknown": "1"}]
)
def test_what_no_subscription_can_have_is_refused(configs: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        check_client_metrics(configs, ClientPattern)


def test_lists_of_a_subscription_grow_and_shrink_as_lists_of_others_do() -> None:
    def changed(operation: int, value: str) -> Mapping[str, str]:
        entry = AlterableConfig(name="metrics", config_operation=operation, value=value)
        return incremental([entry], CLIENT_METRICS)({"metrics": "a.,b."})

    assert changed(2, "c.") == {"metrics": "a.,b.,c."}
    assert changed(3, "a.") == {"metrics": "b."}


def subscribed_instance(
    instances: ClientInstances, now: float = 0.0, instance_id: UUID = ID
) -> ClientInstance:
    instance = instances.of(instance_id, CLIENT, now)
    instance.get(now)
    return instance


def made(**configs: Mapping[str, str]) -> ClientInstances:
    instances = ClientInstances(instances_max=3, series_max=10)
    instances.subscribe(configs)
    return instances


ALL = {"metrics": "*", "interval.ms": "10000"}


def push(
    instance: ClientInstance,
    now: float,
    *,
    subscription_id: int | None = None,
    compression: int = 0,
    size: int = 1,
    terminating: bool = False,
) -> ErrorCode:
    try:
        instance.push(
            now,
            subscription_id=instance.subscription_id if subscription_id is None else subscription_id,
            compression=compression,
            size_bytes=size,
            size_bytes_max=100,
            terminating=terminating,
        )
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def asked(instance: ClientInstance, now: float) -> ErrorCode:
    try:
        instance.get(now)
    except KafkaError as error:
        return error.code
    return ErrorCode.NONE


def test_the_first_push_may_be_early_and_each_later_one_waits_for_the_interval() -> None:
    instance = subscribed_instance(made(a=ALL))
    assert push(instance, 1.0) is ErrorCode.NONE
    assert push(instance, 10.9) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert push(instance, 11.0) is ErrorCode.NONE


def test_a_question_before_the_interval_is_over_is_throttled() -> None:
    instance = subscribed_instance(made(a=ALL))
    assert asked(instance, 9.9) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert asked(instance, 10.0) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"subscription_id": 12345}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"compression": -1}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        ({"size": 101}, ErrorCode.TELEMETRY_TOO_LARGE),
        ({"subscription_id": 12345, "compression": 5, "size": 101}, ErrorCode.UNKNOWN_SUBSCRIPTION_ID),
        ({"compression": 5, "size": 101}, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
    ],
)
def test_a_push_is_checked_in_kafkas_order(wrong: dict[str, int], code: ErrorCode) -> None:
    instance = subscribed_instance(made(a=ALL))
    assert push(instance, 1.0, **wrong) is code  # type: ignore[arg-type]
    may_ask = code is not ErrorCode.TELEMETRY_TOO_LARGE
    assert asked(instance, 2.0) is (ErrorCode.NONE if may_ask else ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_the_last_push_may_come_at_any_time_and_nothing_comes_after_it() -> None:
    instance = subscribed_instance(made(a=ALL))
    assert push(instance, 1.0) is ErrorCode.NONE
    assert push(instance, 1.1, terminating=True) is ErrorCode.NONE
    assert push(instance, 30.0) is ErrorCode.INVALID_REQUEST
    assert push(instance, 40.0) is ErrorCode.INVALID_REQUEST


def test_a_client_hears_of_a_changed_subscription_at_once_and_has_another_id_then() -> None:
    instances = made(a=ALL)
    before = subscribed_instance(instances).subscription_id
    instances.subscribe({"a": dict(ALL)})
    assert asked(instances.of(ID, CLIENT, 1.0), 1.0) is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    instances.subscribe({"a": {**ALL, "metrics": "x."}})
    instance = instances.of(ID, CLIENT, 1.1)
    assert push(instance, 1.1, subscription_id=before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert asked(instance, 1.2) is ErrorCode.NONE
    assert push(instance, 1.3) is ErrorCode.NONE


@given(st.uuids(), st.uuids())
def test_every_broker_has_the_same_id_of_a_subscription_and_each_client_another(
    first: UUID, second: UUID
) -> None:
    here, there = made(a=ALL), made(a=ALL)
    ids = {where.of(first, CLIENT, 0.0).subscription_id for where in (here, there)}
    assert len(ids) == 1
    assert -(2**31) <= next(iter(ids)) < 2**31
    assert first == second or here.of(second, CLIENT, 0.0).instance_id == second


@pytest.mark.parametrize("reserved", [0, 1])
def test_reserved_ids_push_nothing(reserved: int) -> None:
    with pytest.raises(KafkaError) as refused:
        check_instance_id(UUID(int=reserved))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def gauge(name: str, value: float = 1.0, **attributes: str) -> OtlpPoint:
    return OtlpPoint(
        name=name, kind=PointKind.GAUGE, value=value, attributes=tuple(sorted(attributes.items()))
    )


def test_the_quietest_client_makes_room_and_those_that_are_gone_leave_with_their_series() -> None:
    instances = made(a=ALL)
    for number in range(4):
        instance = subscribed_instance(instances, float(number), UUID(int=10 + number))
        in_one_go(instance.series.steps([gauge("a"), gauge("b")]))
    assert [known.instance_id.int for known in instances.present(4.0)] == [11, 12, 13]
    assert instances.room.count == 6
    assert len(instances.present(61.5)) == 2, "three intervals are less than a minute"
    assert instances.room.count == 4
    assert instances.present(1_000.0) == []
    assert instances.room.count == 0


def test_changes_are_added_up_and_other_values_replace_what_was() -> None:
    series = ClientSeries("c", "i", SeriesRoom(10))
    counted = OtlpPoint(name="n.total", kind=PointKind.COUNTER, value=2, is_delta=True)
    for _ in range(3):
        in_one_go(series.steps([counted, gauge("g", 5.0)]))
    assert [value.value for value in series.values.values()] == [6, 5.0]


def test_series_of_all_clients_share_one_bound() -> None:
    room = SeriesRoom(3)
    first, second = ClientSeries("a", "1", room), ClientSeries("b", "2", room)
    in_one_go(first.steps([gauge("x"), gauge("y")]))
    in_one_go(second.steps([gauge("x"), gauge("y"), gauge("x", 3.0)]))
    assert (room.count, room.left_out_count) == (3, 1)
    first.clear()
    in_one_go(second.steps([gauge("y")]))
    assert room.count == 2


def test_names_of_kafka_stay_and_all_others_get_a_name_apart() -> None:
    assert family_name("org.apache.kafka.producer.record.send.total", PointKind.COUNTER) == (
        "org_apache_kafka_producer_record_send"
    )
    assert family_name("kafka_server_x", PointKind.GAUGE) == "client_telemetry_kafka_server_x"
    assert family_name("odradek.build.info", PointKind.GAUGE) == "client_telemetry_odradek_build_info_value"


@given(
    st.lists(
        st.builds(
            OtlpPoint,
            name=st.text(min_size=1, max_size=6)
            | st.sampled_from(["a.total", "a_total", "a", "a_info", "0"]),
            kind=st.sampled_from(PointKind),
            value=st.floats(0, allow_infinity=False),
            attributes=st.dictionaries(
                st.text(min_size=1, max_size=3) | st.sampled_from(["client_id", "__name__", "le"]),
                st.text(max_size=3),
                max_size=2,
            ).map(lambda pairs: tuple(sorted(pairs.items()))),
        ),
        max_size=6,
    )
)
def test_whatever_clients_push_is_metrics_that_prometheus_can_read(points: list[OtlpPoint]) -> None:
    room = SeriesRoom(100)
    both = [ClientSeries("c\n", "1", room), ClientSeries('"', "2", room)]
    for series in both:
        in_one_go(series.steps(points))
    text = written(in_one_go(families_of(both)), OPEN_METRICS).decode()
    read = list(text_string_to_metric_families(text))
    assert len({family.name for family in read}) == len(read)
    samples = [
        (sample.name, tuple(sorted(sample.labels.items()))) for family in read for sample in family.samples
    ]
    assert len(samples) == len(set(samples)) == room.count
