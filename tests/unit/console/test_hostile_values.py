"""Searches in values that strangers wrote: what breaks a comparison matches nothing, and no reason quotes what is masked."""

from __future__ import annotations

import json
import sys

import pytest
from tests.schema_registry import registry_of_ids
from tests.unit.console.test_document_search import Letter
from tests.unit.console.test_record_decoding import ORDER, ShiftedClock, framed, written

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.console.records.decoding import RecordDecoder
from odradek.console.records.filtering import RecordFilter, parse_condition
from odradek.console.records.masking import MaskRule, RecordMasks
from odradek.console.records.reading import RecordSight
from odradek.records import TimestampType


def test_a_number_that_has_no_text_matches_nothing_and_ends_no_search() -> None:
    huge = 10 ** (sys.get_int_max_str_digits() + 10)
    test = RecordFilter(condition=parse_condition("a ~ 7")).test(lambda _: {"a": huge})
    assert not test(Letter(b""))


def test_lists_that_are_too_deep_to_compare_match_nothing() -> None:
    def nested(depth: int) -> object:
        node: object = 1
        for _ in range(depth):
            node = [node]
        return node

    for condition in ("a != 1", "a = 1"):
        test = RecordFilter(condition=parse_condition(condition)).test(lambda _: {"a": nested(100_000)})
        assert test(Letter(b"")) == (condition == "a != 1")


@pytest.mark.parametrize("depth", [10, 900, 960, 985, 5_000])
def test_a_masked_value_may_be_as_deep_as_it_likes(depth: int) -> None:
    with registry_of_ids() as registry:
        registry.held.schemas[3] = {"schema": "{}", "schemaType": "JSON"}
        masks = RecordMasks([MaskRule(topics=("pay*",), names=frozenset({"item"}))])
        sight = RecordSight(masks=masks, decoder=RecordDecoder(registry.terms, ShiftedClock()))
        documents = sight.documents()
        value = b'{"item":"secret","b":' + b"[" * depth + b"]" * depth + b"}"
        seen = sight.searched(paid(framed(3, value)), documents)
        assert b"secret" not in (seen.value or b"")


def test_the_reason_why_a_masked_value_was_not_decoded_quotes_none_of_it() -> None:
    value = written(ORDER, {"item": "tea", "raw": 5}).replace(b"tea", b"te\xfa")
    with registry_of_ids() as registry:
        registry.avro(1, ORDER)
        masks = RecordMasks([MaskRule(topics=("pay*",), names=frozenset({"item"}))])
        sight = RecordSight(masks=masks, decoder=RecordDecoder(registry.terms, ShiftedClock()))
        documents = sight.documents()
        assert documents is not None
        assert (
            json.loads((sight.searched(paid(framed(1, value)), documents).value or b"").decode().join('""'))
            == "•••"
        )
        assert documents.undecoded == 1
        assert documents.page.problem == "schema 1: a masked value does not fit it"
        shown = sight.documents()
        assert shown is not None
        shown.document(framed(1, value))
        assert "0xfa" in shown.page.problem, "the reason of a value that is not masked says more"


def paid(value: bytes) -> ConsumerRecord:
    return ConsumerRecord(
        topic="payments", partition=0, offset=0, timestamp_ms=0, timestamp_type=TimestampType.CREATE_TIME,
        key=None, value=value, headers=(), leader_epoch=0,
    )  # fmt: skip
