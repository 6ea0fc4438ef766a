"""Which offsets a batch read covers."""

from __future__ import annotations

from odradek.model.ids import ZERO_UUID
from odradek.spark.options.options import ReadOptions
from odradek.spark.options.positions import AtGroup, AtOffsets
from odradek.spark.reading.catalog import Catalog, log_ranges, resolve, subscribed_at_start
from odradek.spark.reading.offsets import OffsetRange
from odradek.spark.reading.planning import lost_records
from odradek.spark.reading.progress import report_loss


def plan_batch(options: ReadOptions, catalog: Catalog) -> list[OffsetRange]:
    """Returns the ranges to read, in order; ConfigError or KafkaError when what was asked for cannot be read."""
    partitions = subscribed_at_start(options.topics, catalog)
    ids = catalog.topic_ids(sorted({partition.topic for partition in partitions}))
    earliest, latest = log_ranges(partitions, catalog)
    starts = resolve(
        options.starting,
        partitions,
        catalog,
        "starting",
        topic_ids=ids,
        no_newer_record=options.no_newer_record,
    )
    ends = resolve(options.ending, partitions, catalog, "ending", topic_ids=ids)
    named_starts = starts if isinstance(options.starting, AtOffsets | AtGroup) else {}
    named_ends = ends if isinstance(options.ending, AtOffsets) else {}
    losses = lost_records(named_starts, earliest, latest) + lost_records(named_ends, {}, latest)
    report_loss(losses, fail=options.fail_on_data_loss)
    ranges = [
        OffsetRange(
            partition=partition,
            start=max(starts[partition], earliest[partition]),
            end=min(ends[partition], latest[partition]),
            topic_id=ids.get(partition.topic, ZERO_UUID),
        )
        for partition in partitions
        if partition in latest and partition in earliest and partition in starts and partition in ends
    ]
    return [span for span in ranges if span.size > 0]
