"""Spark's own Kafka connector writes one row for each login, in one session.

Arguments: jars, servers, topic, directory, and the settings of all logins as JSON. `seen.json` in the directory gets "written"
or Spark's own words for each.
"""

import json
import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

jars, servers, topic, place, logins = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.jars", jars)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.sql.warehouse.dir", str(Path(place) / "warehouse"))
    .getOrCreate()
)


def write(settings: dict[str, str], value: str) -> str:
    options = {f"kafka.{name}": setting for name, setting in settings.items()}
    rows = spark.range(1).selectExpr(f"'{value}' as value")
    try:
        rows.write.format("kafka").option("kafka.bootstrap.servers", servers).options(**options).option(
            "topic", topic
        ).save()
    except Py4JJavaError as error:
        return str(error)
    return "written"


outcomes = [write(settings, f"spark {number}") for number, settings in enumerate(json.loads(logins))]
(Path(place) / "seen.json").write_text(json.dumps(outcomes))
spark.stop()
