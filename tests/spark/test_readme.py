"""The README's stream runs as it is printed, but for where the broker is, how long it runs and where its rows go."""

import re
from pathlib import Path
from typing import Any

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
