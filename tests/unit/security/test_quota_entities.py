"""What requests about quotas may say."""

import math

import pytest

from odradek.model.errors import ErrorCode, KafkaError
from odradek.security.quota_entities import Filter, QuotaChange, changed, check_change, entity_of

USER_U = (("user", "u"),)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("color", "red")],
        [("user", "")],
        [("client-id", "")],
        [("user", "u"), ("user", "v")],
        [("ip", "1.2.3.4"), ("user", "u")],
        [("ip", "a.host.name")],
    ],
)
def test_an_entity_that_cannot_be_is_refused(parts) -> None:
    with pytest.raises(KafkaError) as refused:
        entity_of(parts)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_entity_is_the_same_in_any_order() -> None:
    assert entity_of([("user", "u"), ("client-id", None)]) == entity_of([("client-id", None), ("user", "u")])


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        (USER_U, "producer_byte_rate", 0.0),
        (USER_U, "producer_byte_rate", -1.0),
        (USER_U, "producer_byte_rate", 1.5),
        (USER_U, "consumer_byte_rate", 1e300),
        (USER_U, "consumer_byte_rate", math.inf),
        (USER_U, "consumer_byte_rate", math.nan),
        (USER_U, "request_percentage", math.inf),
        (USER_U, "nosuch", 1.0),
        (USER_U, "connection_creation_rate", 1.0),
        ((("ip", None),), "producer_byte_rate", 1.0),
        ((("ip", None),), "connection_creation_rate", 1.5),
    ],
)
def test_a_limit_that_means_nothing_is_refused(entity, key: str, value: float) -> None:
    with pytest.raises(KafkaError) as refused:
        check_change(entity, QuotaChange(key, value))
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert key in refused.value.message


def test_limits_that_have_parts_of_a_whole_are_taken() -> None:
    check_change(USER_U, QuotaChange("request_percentage", 1.5))
    check_change(USER_U, QuotaChange("controller_mutation_rate", 0.5))


def test_changes_set_and_remove_limits() -> None:
    after = changed(
        {"a": 1.0, "b": 2.0}, [QuotaChange("a", None), QuotaChange("c", 3.0), QuotaChange("never", None)]
    )
    assert after == {"b": 2.0, "c": 3.0}


ENTITIES = [
    (("user", "u"),),
    (("user", None),),
    (("client-id", None), ("user", "u")),
    (("client-id", "c"),),
    (("ip", None),),
]


@pytest.mark.parametrize(
    ("components", "strict", "accepted"),
    [
        ([], False, [0, 1, 2, 3, 4]),
        ([], True, []),
        ([("user", 0, "u")], False, [0, 2]),
        ([("user", 0, "u")], True, [0]),
        ([("user", 1, None)], False, [1]),
        ([("user", 2, None)], False, [0, 1, 2]),
        ([("user", 2, None), ("client-id", 1, None)], True, [2]),
        ([("ip", 1, None)], False, [4]),
    ],
)
def test_a_filter_finds_what_it_names(components, strict: bool, accepted: list[int]) -> None:
    wanted = Filter(components, strict=strict)
    assert [number for number, entity in enumerate(ENTITIES) if wanted.accepts(entity)] == accepted


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("color", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 0, "u")], ErrorCode.INVALID_REQUEST),
        ([("ip", 2, None), ("user", 2, None)], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_filter_that_means_nothing_is_refused(components, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as refused:
        Filter(components, strict=False)
    assert refused.value.code is code
