"""An error of ours has no traceback where PySpark turns it into text; any other error has one."""

from __future__ import annotations

import io

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.serializers import read_int
from pyspark.util import handle_worker_exception

from odradek.model.errors import ConfigError, ErrorCode, KafkaError
from odradek.spark.engine.plain_errors import errors_in_one_line


@errors_in_one_line()
def fail(error: Exception) -> None:
    raise error


def as_spark_sees(error: Exception) -> str:
    """What PySpark writes to Spark when `error` comes out of a data source."""
    sent = io.BytesIO()
    try:
        fail(error)
    except Exception as caught:  # noqa: BLE001 - as PySpark does
        handle_worker_exception(caught, sent)
    sent.seek(0)
    read_int(sent)
    return sent.read(read_int(sent)).decode()


@pytest.mark.parametrize("error", [ConfigError("say a"), KafkaError(ErrorCode.INVALID_RECORD, "say a")])
def test_our_errors_are_one_line(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    text = as_spark_sees(error)
    assert "Traceback" not in text
    assert text.strip().count("\n") == 0
    assert text.strip().endswith("say a")


def test_other_errors_keep_their_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    assert "Traceback" in as_spark_sees(ValueError("a bug"))
