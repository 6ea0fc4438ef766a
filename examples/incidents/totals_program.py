"""The pipeline of `failing_pipeline.py`: orders in, receipts out. Its argument says what an order that is none does."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

SERVERS = "kafka.bootstrap.servers"


def pipeline(spark: SparkSession) -> DataStreamWriter:
    """`on_bad_order=fail` ends the query at a bad order; `on_bad_order=dead-letter` keeps it in orders.dlq and goes on."""
    on_bad_order = sys.argv[1].partition("=")[2]
    address = os.environ["ODRADEK_BOOTSTRAP"]
    orders = (
        spark.readStream.format("odradek")
        .option(SERVERS, address)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("valueDecode", "json")
        .option("valueSchema", "amount BIGINT")
        .option("decodeErrors", on_bad_order)
        .load()
    )
    keeps_bad_orders = on_bad_order == "dead-letter"
    columns = ["to_json(value) AS value", *(["deadLetter"] if keeps_bad_orders else [])]
    receipts = orders.selectExpr(*columns).writeStream.format("odradek").option(SERVERS, address)
    receipts = receipts.option("topic", "receipts").option("delivery", "exactly_once")
    return receipts.option("deadLetterTopic", "orders.dlq") if keeps_bad_orders else receipts
