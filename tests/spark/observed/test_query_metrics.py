"""The metrics of queries that run: Spark's own progress, on a listener of the process."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.kit.waiting import eventually

pytest.importorskip("pyspark", reason="PySpark is absent")

from prometheus_client.parser import text_string_to_metric_families

from odradek.spark import serve_metrics
from odradek.streams import Streams

WAIT_S = 60
Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def scrape(url: str) -> Samples:
    with urllib.request.urlopen(url, timeout=20) as page:
        text = page.read().decode()
    return {
        (sample.name.removeprefix("odradek_spark_"), tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scraped_when(url: str, check: Callable[[Samples], bool]) -> Samples:
    return eventually(lambda: scrape(url), holds=check, every_s=0.2)


def test_a_program_shows_what_its_query_does_until_it_is_stopped(
    spark: Any, servers: str, new_topic: Callable[..., Any], tmp_path: Path
) -> None:
    source, totals = new_topic(), new_topic()
    source.send(b'{"item": "tea"}', b'{"item": "tea"}', b'{"item": "bun"}')
    app = Streams("measured", servers=servers, spark=spark)
    stream = app.stream(source.name, value="item STRING")
    stream.group_by("item").agg("count(*) AS n").to(totals.name)

    run = app.start(checkpoint=tmp_path, metrics="127.0.0.1:0")
    try:
        assert run.metrics_url is not None
        (query,) = run.queries.values()
        name = query.name
        of_query = (("query", name),)
        samples = scraped_when(
            run.metrics_url, lambda samples: samples.get(("query_input_rows_total", of_query)) == 3
        )
        assert samples["query_offsets_behind", of_query] == 0
        assert samples["query_phase_seconds", (("phase", "triggerExecution"), ("query", name))] > 0
        rows = [value for (family, _), value in samples.items() if family == "query_state_rows"]
        assert max(rows) >= 2, "a row for each item"
        assert samples["queries", ()] == 1
    finally:
        run.stop()
    with pytest.raises(urllib.error.URLError):
        scrape(run.metrics_url)


def test_queries_that_ran_before_and_those_that_fail_are_counted(
    spark: Any, topic: Any, read_stream: Any, tmp_path: Path
) -> None:
    topic.send(b"1")

    def fail(batch: Any, number: int) -> None:
        raise ValueError("it fails")

    stream = read_stream(topic)
    before = stream.writeStream.format("noop").queryName("before").start()
    with serve_metrics(spark, "127.0.0.1:0") as page:
        topic.send(b"2")
        name = (("query", "before"),)
        scraped_when(page.url, lambda samples: samples.get(("query_input_rows_total", name), 0) >= 1)
        failing = stream.writeStream.foreachBatch(fail).queryName("failing").start()
        samples = scraped_when(page.url, lambda samples: samples["queries_failed_total", ()] == 1)
        assert not failing.isActive
        assert ("query_batches_total", (("query", "failing"),)) not in samples
        before.stop()
        scraped_when(page.url, lambda samples: samples["queries", ()] == 0)
