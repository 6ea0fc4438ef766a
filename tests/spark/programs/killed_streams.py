"""A program of streams that runs until it is killed, in a JVM of its own.

    python -m tests.spark.programs.killed_streams TERMS           # JSON: servers, orders, users, counts, checkpoint

It prints the process id of its JVM once that has started.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.spark.programs.own_program import own_session, run_patiently

from odradek.streams import Streams


def program(terms: dict[str, str], spark: Any, *, orders_a_batch: int) -> Streams:
    """Two operators with state, one after the other: orders with the user's city, and how many there are of each city."""
    app = Streams(f"killed-{terms['orders']}", servers=terms["servers"], spark=spark, emit="every")
    users = app.table(terms["users"], key="STRING", value="city STRING")
    orders = app.stream(
        terms["orders"],
        key="STRING",
        value="amount INT",
        options={"maxOffsetsPerTrigger": str(orders_a_batch)},
    )
    named = orders.join(users, how="left", name="with-city").select("coalesce(city, '-') AS city", "amount")
    named.group_by("city").agg("count(*) AS n", "sum(amount) AS sum", name="by-city").to(
        terms["counts"], name="counts"
    )
    return app


def main() -> None:
    terms = json.loads(sys.argv[1])
    spark = own_session(spark__sql__shuffle__partitions="1")
    jvm: Any = spark.sparkContext._jvm
    sys.stdout.write(f"{jvm.ProcessHandle.current().pid()}\n")
    sys.stdout.flush()

    def run() -> None:
        app = program(terms, spark, orders_a_batch=40)
        with app.start(checkpoint=terms["checkpoint"], interval="0 seconds") as running:
            running.wait()

    run_patiently(run)


if __name__ == "__main__":
    main()
