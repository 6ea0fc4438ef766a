"""Events: one line each, with their values, in text and in JSON."""

import io
import json
import logging
from collections.abc import Iterator

import pytest

from odradek.telemetry import events


@pytest.fixture(autouse=True)
def restored_logger() -> Iterator[None]:
    logger = logging.getLogger("odradek")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield
    logger.handlers[:], logger.level, logger.propagate = before
    logging.getLogger("asyncio").handlers.clear()


def test_an_event_is_one_line_with_quoted_values_where_needed() -> None:
    out = io.StringIO()
    events.configure(stream=out)
    events.get("storage").info("segment_rolled", partition="t-0", reason="by size", count=3)
    line = out.getvalue()
    assert line.endswith('INFO    storage: segment_rolled partition=t-0 reason="by size" count=3\n')
    assert line.count("\n") == 1


def test_a_value_cannot_forge_a_second_line() -> None:
    out = io.StringIO()
    events.configure(stream=out)
    events.get("net").warning("connection_dropped", reason="x\nERROR net: forged")
    assert out.getvalue().count("\n") == 1


def test_json_lines_are_parsed_back_to_the_same_values() -> None:
    out = io.StringIO()
    events.configure(stream=out, json_lines=True)
    events.get("broker").error("partition_offline", partition="t-0", attempts=2)
    parsed = json.loads(out.getvalue())
    assert (parsed["event"], parsed["room"], parsed["level"]) == ("partition_offline", "broker", "error")
    assert (parsed["partition"], parsed["attempts"]) == ("t-0", 2)


def test_events_below_the_level_are_not_made() -> None:
    out = io.StringIO()
    events.configure(stream=out, level="WARNING")
    events.get("broker").info("quiet")
    assert out.getvalue() == ""


def test_an_exception_event_carries_the_traceback() -> None:
    out = io.StringIO()
    events.configure(stream=out, json_lines=True)
    try:
        raise ValueError("inside")
    except ValueError:
        events.get("net").exception("request_failed", peer="p")
    assert "ValueError: inside" in json.loads(out.getvalue())["traceback"]


def test_an_application_that_logs_its_own_way_reads_the_values_too(caplog: pytest.LogCaptureFixture) -> None:
    events.get("client").warning("broker_unreachable", address="127.0.0.1:9092", reason="100 % gone")
    assert caplog.messages == ['broker_unreachable address=127.0.0.1:9092 reason="100 % gone"']


@pytest.mark.parametrize("json_lines", [False, True])
def test_lines_of_a_log_that_brokers_share_say_which_of_them(json_lines: bool) -> None:
    out = io.StringIO()
    events.configure(stream=out, json_lines=json_lines, node=3)
    events.get("net").warning("connection_dropped", broker=1)
    assert ('"node": 3' if json_lines else " broker=1 node=3\n") in out.getvalue()
