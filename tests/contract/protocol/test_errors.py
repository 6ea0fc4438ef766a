"""The table of error codes is Kafka's: `tests/golden/protocol/kafka-4.4.0/errors.txt`."""

from __future__ import annotations

from pathlib import Path

from odradek.model.errors import ErrorCode

RECORDED = Path(__file__).parents[2] / "golden" / "protocol" / "kafka-4.4.0" / "errors.txt"


def test_every_code_has_kafkas_number_and_name_and_is_retriable_where_kafkas_is() -> None:
    recorded = RECORDED.read_text().splitlines()
    assert [
        f"{code.value} {code.name} {'retriable' if code.retriable else 'final'}" for code in ErrorCode
    ] == recorded
