"""Rules that hide parts of records: what they reach, hostile values, and files that are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from odradek.client.consumer.consumer_record import ConsumerRecord
from odradek.console.records.filtering import JSON_BYTES_MAX, RecordFilter, parse_condition
from odradek.console.records.masking import MASK, RULES_MAX, RecordMasks, read_masks
from odradek.console.sql.editor_text import EditorRefusal
from odradek.console.sql.masked_sources import check_unmasked
from odradek.dead_letters import headers as letter_headers
from odradek.model.errors import ConfigError
from odradek.records import TimestampType

HIDDEN = MASK.encode()
RULES = """
[[mask]]
topics = ["pay*"]
fields = ["$.card.number", "items[*].price", "$['a b']"]
names = ["SSN"]
headers = ["authorization", "x-*"]

[[mask]]
topics = ["keys"]
key = true

[[mask]]
topics = ["whole"]
value = true
"""


@pytest.fixture
def masks(tmp_path: Path) -> RecordMasks:
    return masks_of(tmp_path, RULES)


def masks_of(folder: Path, text: str) -> RecordMasks:
    path = folder / "masks.toml"
    path.write_text(text)
    return read_masks(path)


def record(topic: str, value: bytes | None, **more: Any) -> ConsumerRecord:
    fields: dict[str, Any] = {"key": b"k", "headers": (), **more}
    return ConsumerRecord(
        topic=topic,
        partition=0,
        offset=1,
        timestamp_ms=5,
        timestamp_type=TimestampType.CREATE_TIME,
        value=value,
        leader_epoch=0,
        **fields,
    )


def seen(masks: RecordMasks, value: bytes) -> Any:
    content = masks.masked(record("payments", value)).value
    assert content is not None
    return json.loads(content)


def test_fields_at_paths_and_names_at_any_depth_are_hidden_and_all_else_stays(masks: RecordMasks) -> None:
    document = {
        "card": {"number": "4111", "brand": "visa"},
        "items": [{"price": 1, "name": "tea"}, {"price": None, "name": "cup"}],
        "a b": [1, 2],
        "people": [[{"ssn": "1"}, {"Ssn": {"deep": "2"}}]],
    }
    assert seen(masks, json.dumps(document).encode()) == {
        "card": {"number": MASK, "brand": "visa"},
        "items": [{"price": MASK, "name": "tea"}, {"price": MASK, "name": "cup"}],
        "a b": MASK,
        "people": [[{"ssn": MASK}, {"Ssn": MASK}]],
    }


def test_every_content_has_the_same_mask(masks: RecordMasks) -> None:
    values = [b'{"ssn": %s}' % content for content in (b"null", b'"1"', b"[1, 2]", b'"' + b"9" * 9000 + b'"')]
    assert {masks.masked(record("payments", value)).value for value in values} == {
        b'{"ssn": "' + HIDDEN + b'"}'
    }


@pytest.mark.parametrize(
    "value",
    [
        b'{"ssn": "SECRET", "ssn": "SECRET"}',
        b'{"\\u0073sn": "SECRET"}',
        b'\xef\xbb\xbf{"ssn": "SECRET"}',
        '{"ssn": "SECRET"}'.encode("utf-16"),
        b'{"ssn": "SECRET"',
        b'{"ssn": "SECRET"} trailing',
        b"ssn=SECRET",
        b'\x00\x00\x00\x00\x07{"ssn": "SECRET"}',
        b'{"ssn": "SECRET", "n": ' + b"9" * 20_000 + b"}",
        b'{"a": ' * 900 + b'{"ssn": "SECRET"}' + b"}" * 900,
        b"[" * 50_000 + b'"SECRET"',
        b'{"ssn": "SECRET", "pad": "' + b"x" * JSON_BYTES_MAX + b'"}',
        b'{"items": [' + b'{"price": "SECRET"},' * 50_000 + b'{"price": "SECRET"}]}',
    ],
    ids=lambda value: value[:24],
)
def test_no_way_to_write_a_value_shows_a_masked_field(masks: RecordMasks, value: bytes) -> None:
    shown = masks.masked(record("payments", value)).value
    assert shown is not None
    assert b"SECRET" not in shown
    assert HIDDEN in shown


def test_keys_values_and_headers_are_hidden_whole(masks: RecordMasks) -> None:
    assert masks.masked(record("keys", b"v")) == record("keys", b"v", key=HIDDEN)
    assert masks.masked(record("whole", None)).value == HIDDEN
    pairs = (("Authorization", b"SECRET"), ("X-Token", None), ("trace", b"1"))
    shown = masks.masked(record("payments", None, headers=pairs))
    assert shown.headers == (("Authorization", HIDDEN), ("X-Token", HIDDEN), ("trace", b"1"))
    assert shown.value is None


def test_topics_without_a_rule_stay_as_they_are(masks: RecordMasks) -> None:
    plain = record("orders", b'{"ssn": "1"}')
    assert masks.masked(plain) is plain
    assert not masks.concerns(plain)
    assert RecordMasks().masked(plain) is plain


def test_a_dead_letter_follows_the_rules_of_the_topic_that_it_came_from(masks: RecordMasks) -> None:
    pairs = ((letter_headers.TOPIC, b"payments"), (letter_headers.MESSAGE, b"cannot parse SECRET"))
    shown = masks.masked(record("some.dlq", b'{"ssn": "SECRET"}', headers=pairs))
    assert b"SECRET" not in (shown.value or b"")
    assert dict(shown.headers)[letter_headers.MESSAGE] == HIDDEN
    assert dict(shown.headers)[letter_headers.TOPIC] == b"payments"


def test_what_a_filter_tests_is_the_masked_record(masks: RecordMasks) -> None:
    stored = record("payments", b'{"ssn": "123-45", "name": "Ann"}')
    shown = masks.masked(stored)
    for wanted in (
        RecordFilter(text="123-45"),
        RecordFilter(condition=parse_condition("$.ssn ~ 1")),
        RecordFilter(condition=parse_condition('$.ssn >= "1"')),
    ):
        assert wanted.test()(stored)
        outcomes = {wanted.test()(masks.masked(record("payments", b'{"ssn": "%d"}' % n))) for n in range(20)}
        assert outcomes == {wanted.test()(shown)}, "the outcome depends on what is masked"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", r"one to 1000 tables \[\[mask\]\]"),
        ("[[mask]]\ntopics = []\nkey = true", "name the topics"),
        ("[[mask]]\ntopics = ['a']", "hides nothing"),
        ("[[mask]]\ntopics = ['a']\nkeys = true", "'keys' is unknown: expected topics"),
        ("[[mask]]\ntopics = 'a'\nkey = true", "topics is a list"),
        ("[[mask]]\ntopics = ['a']\nkey = 1", "key is true or false"),
        ("[[mask]]\ntopics = ['a']\nfields = ['$.a = 1']", "is no path"),
        ("[[mask]]\ntopics = ['a']\nfields = ['$']", "is no path"),
        ("[[mask]]\ntopics = ['a']\nfields = ['$..ssn']", "use names"),
        ("[[mask]]\ntopics = ['a']\nfields = ['a.*.b']", "use names"),
        ("[mask]\ntopics = ['a']", "one to 1000 tables"),
        ("other = 1\n[[mask]]\ntopics = ['a']\nkey = true", "nothing else"),
        ("[[mask]]\ntopics = ['a']\nkey = true\n" * (RULES_MAX + 1), "one to 1000 tables"),
        ("mask = [1]", "expected a table"),
        ("not toml", "cannot read"),
    ],
)
def test_a_file_that_would_hide_less_than_it_seems_to_is_refused(
    tmp_path: Path, text: str, line: str
) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        masks_of(tmp_path, text)
    assert "masks.toml" in str(caught.value)


SOURCES = [
    {"name": "CARDS", "topic": "payments"},
    {"name": "od`d", "topic": "payments"},
    {"name": "ORDERS", "topic": "orders"},
]


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM cards EMIT CHANGES;",
        "SELECT number AS harmless FROM `CARDS`;",
        "SELECT * FROM `od``d`;",
        "SELECT o.* FROM orders o JOIN cards c ON o.id = c.id;",
        "CREATE STREAM copy AS SELECT * FROM CARDS;",
        "INSERT INTO orders SELECT * FROM cards;",
        "CREATE STREAM s (a INT) WITH (KAFKA_TOPIC='payments', VALUE_FORMAT='JSON');",
        "create stream PAYMENTS (a int) with (value_format='json');",
        "PRINT payments;",
        "PRINT 'payments' FROM BEGINNING;",
        "PRINT payments--x\n;",
        "PRINT/**/payments;",
        "PRINT 'p\\x61yments';",
        "PRINT U&'payments';",
        "PRINT ${topic};",
        "SHOW STREAMS; PRINT payments;",
        "-- it's a comment\nSELECT * FROM cards;",
    ],
)
def test_no_statement_shows_rows_of_a_masked_topic(masks: RecordMasks, text: str) -> None:
    with pytest.raises(EditorRefusal):
        check_unmasked(text, masks, SOURCES)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT * FROM orders EMIT CHANGES;",
        "PRINT orders;",
        "SHOW STREAMS;",
        "DESCRIBE cards;",
        "TERMINATE q;",
    ],
)
def test_statements_about_other_topics_run(masks: RecordMasks, text: str) -> None:
    check_unmasked(text, masks, SOURCES)
