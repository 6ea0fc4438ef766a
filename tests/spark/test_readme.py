"""The README's programs for Spark run as printed, but for where the broker is, how long they run and where files go."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.spark.conftest import Rows, Topic

from odradek.client import Producer

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_stream_reads_what_was_produced(spark: Any, servers: str) -> None:
    with Producer(servers) as producer:
        producer.send("greetings", b"hello stream")
        producer.flush()
    [block] = re.findall(r"```python\n(from pyspark.*?)```", README.read_text(), flags=re.DOTALL)
    block = block.replace("127.0.0.1:9092", servers)
    block = block.replace("query.awaitTermination(30)", "query.processAllAvailable(); query.stop()")
    block = block.replace('format("console")', 'format("memory").queryName("readme")')
    exec(block, {"__name__": "readme"})
    assert [row.value for row in spark.table("readme").collect()] == ["hello stream"]


def test_the_readmes_streams_program_writes_totals(
    spark: Any, servers: str, consume: Callable[..., Rows], tmp_path: Path
) -> None:
    with Producer(servers) as producer:
        for product, amount in [("tea", 2.5), ("tea", 1.5), ("jam", 4.0)]:
            value = json.dumps({"item": product, "amount": amount}).encode()
            producer.send("orders", value, key=b"k")
        producer.flush()
    [block] = re.findall(r"```python\n(from odradek.streams.*?)```", README.read_text(), flags=re.DOTALL)
    block = block.replace("127.0.0.1:9092", servers)
    block = block.replace('checkpoint="/tmp/orders"', f'checkpoint="{tmp_path}", until_now=True')
    exec(block, {"__name__": "readme"})
    totals = {row["key"]: json.loads(row["value"]) for row in consume(Topic("totals", servers))}
    assert totals == {
        b"tea": {"n": 2, "total": 4.0},
        b"jam": {"n": 1, "total": 4.0},
    }
