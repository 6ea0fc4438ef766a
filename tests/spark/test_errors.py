"""What goes wrong is said in the first line of Spark's error, and without a Python traceback."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="PySpark is absent")

from pyspark.errors import PySparkException

Finish = Callable[[Any], None]


def message_of(error: PySparkException) -> str:
    text = str(error)
    assert "Traceback" not in text
    return "\n".join(text.splitlines()[:2])


def test_errors_of_batch_reads(topic: Any, read: Any) -> None:
    topic.send(b"no json")
    with pytest.raises(PySparkException) as planned:
        read(topic, subscibe="x")
    assert "unknown option 'subscibe'; did you mean subscribe?" in message_of(planned.value)
    with pytest.raises(PySparkException) as executed:
        read(topic, valueDecode="json", valueSchema="n INT").collect()
    assert f"the value at {topic.name}-0 offset 0 is not JSON" in message_of(executed.value)


def test_errors_of_streams(topic: Any, read_stream: Any, tmp_path: Path, run_to_end: Finish) -> None:
    topic.send(b"no json")
    wrong = {
        "endingOffsets does not apply to a streaming read": {"endingOffsets": "latest"},
        "there is no topic never-made": {"subscribe": "never-made"},
        f"the value at {topic.name}-0 offset 0 is not JSON": {"valueDecode": "json", "valueSchema": "n INT"},
    }
    for number, (words, options) in enumerate(wrong.items()):
        stream = read_stream(None if "subscribe" in options else topic, **options)
        query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path / str(number)))
        with pytest.raises(PySparkException) as caught:
            run_to_end(query.trigger(availableNow=True).start())
        assert words in message_of(caught.value)


def test_errors_of_writes(topic: Any, spark: Any) -> None:
    def write(frame: Any, **options: str) -> None:
        servers = {"kafka.bootstrap.servers": topic.servers}
        frame.write.format("odradek").options(**servers, **options).mode("append").save()

    with pytest.raises(PySparkException) as planned:
        write(spark.range(3), topic=topic.name)
    assert "a write needs a column value; there are id" in message_of(planned.value)
    with pytest.raises(PySparkException) as executed:
        write(spark.sql("SELECT 'a' AS value, CAST(NULL AS STRING) AS topic"))
    assert "row 0 of this task cannot be written: its topic is null" in message_of(executed.value)


def test_a_broker_that_is_not_there_is_named(spark: Any) -> None:
    servers = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.default.api.timeout.ms": "1500"}
    with pytest.raises(PySparkException) as caught:
        spark.read.format("odradek").options(**servers, subscribe="t").load().count()
    assert "cannot connect to 127.0.0.1:1" in message_of(caught.value)
