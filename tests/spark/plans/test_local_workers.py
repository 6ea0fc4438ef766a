"""Tasks run in the worker that worked last, and in Spark's order where Java refuses."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.kit.waiting import eventually

from odradek.spark.engine import java_classes
from odradek.spark.engine.local_workers import take_last_worker_first
from odradek.spark.engine.session import jvm_of


def workers_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.record_batch({"worker": pa.array([os.getpid()], pa.int64())})


def workers(spark: SparkSession, tasks: int) -> list[int]:
    rows = spark.range(0, tasks, 1, tasks).mapInArrow(workers_of, "worker BIGINT")
    return [row.worker for row in rows.collect()]


def nested(spark: SparkSession) -> None:
    """Has more than one worker idle: a task of two functions needs two at a time."""
    spark.range(0, 1, 1, 1).mapInArrow(workers_of, "worker BIGINT").mapInArrow(
        workers_of, "worker BIGINT"
    ).collect()


def workers_of_jobs(spark: SparkSession) -> set[int]:
    return {worker for _ in range(6) for worker in workers(spark, 1)}


def test_tasks_one_after_another_run_in_one_worker(spark: SparkSession) -> None:
    nested(spark)
    take_last_worker_first(spark)
    assert len(workers_of_jobs(spark)) == 1
    take_last_worker_first(spark)
    assert len(workers_of_jobs(spark)) == 1


def test_workers_of_a_new_kind_do_so_from_a_later_job_on(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_last_worker_first(spark)
    monkeypatch.setitem(spark.sparkContext.environment, "ODRADEK_KIND_OF_WORKER", "another")
    nested(spark)
    eventually(lambda: workers_of_jobs(spark), holds=lambda distinct: len(distinct) == 1, seconds=60)


def test_workers_that_were_idle_before_stay_idle_workers(spark: SparkSession) -> None:
    take_last_worker_first(spark)
    jvm: Any = jvm_of(spark)
    queue = jvm.scala.collection.mutable.Queue(4)
    for number in range(3):
        queue.addOne(number)
    idle = jvm.org.apache.spark.api.python.IdleWorkers(queue)
    assert [idle.dequeue() for _ in range(3)] == [2, 1, 0]
    assert queue.isEmpty()


def test_where_java_refuses_it_is_logged_and_tasks_run(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(jvm: Any, source: java_classes.JavaSource, cache: Path | None) -> None:
        raise OSError("no space")

    monkeypatch.setattr(java_classes, "define", refuse)
    with caplog.at_level(logging.INFO):
        take_last_worker_first(spark)
    assert 'last_worker_not_first reason="no space"' in caplog.messages
    assert len(workers(spark, 2)) == 2
