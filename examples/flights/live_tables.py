"""The flights as streams and tables: `python examples/flights/live_tables.py [DAYS]`, 14 days if you do not say.

Departures are joined with airports, planes and weather; delays are counted by carrier and day, and by carrier in a table that
is asked while the program runs. At the end there is a chart. It takes a minute and a half on two cores, most of it for Spark.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from odradek.streams import Streams

if TYPE_CHECKING:
    import pandas as pd

    from odradek.streams.running import Run

CHART = Path(__file__).resolve().parents[2] / "demo-output" / "live-tables.png"
CARRIERS = {"UA": "#2f6f8f", "B6": "#c2703d", "EV": "#6b8f3a", "DL": "#8a5a9e", "AA": "#444444"}
BEFORE_MS = 1_000
WAIT_S = 600
ASK_EVERY_S = 2
KEEP = {"retention.ms": "-1"}
"""Records carry the time of their flight, which was in 2013."""
RESULTS = {"delayed": KEEP, "daily": KEEP, "carriers": {**KEEP, "cleanup.policy": "compact"}}

FLIGHT = "carrier STRING, flight INT, tailnum STRING, origin STRING, dest STRING, dep_delay DOUBLE, time_hour STRING"


def flights(servers: str | None = None) -> Streams:
    """The program. Without servers it can be tested."""
    app = Streams("live-flights", servers=servers, partitions=1)
    airports = app.table("airports", key="STRING", value="name STRING")
    planes = app.table("planes", key="STRING", value="manufacturer STRING, model STRING")
    reports = app.stream("weather", key="STRING", value="time_hour STRING, wind_speed DOUBLE, visib DOUBLE")
    weather = reports.select_key("concat(key, '@', time_hour) AS place").to_table(name="weather")
    departed = app.stream("flights", value=FLIGHT).filter("dep_delay IS NOT NULL", name="departed")

    delayed = departed.filter("dep_delay >= 120", name="delayed")
    somewhere = delayed.join(airports, on="dest", how="left", name="with-airport")
    in_a_plane = somewhere.join(planes, on="tailnum", how="left", name="with-plane")
    in_a_wind = in_a_plane.join(
        weather,
        on="concat(origin, '@', time_hour) AS place",
        how="left",
        prefix="weather_",
        name="with-weather",
    )
    in_a_wind.map(
        key="concat(carrier, flight)",
        value=["dep_delay", "name AS to", "concat(manufacturer, ' ', model) AS plane", "wind_speed", "visib"],
    ).to("delayed", name="write-delayed")

    by_carrier = departed.group_by("carrier")
    numbers = ("count(*) AS flights", "avg(dep_delay) AS mean_delay", "max(dep_delay) AS longest")
    by_carrier.window("1 day", grace="1 day").agg(*numbers, name="daily").to("daily", name="write-daily")
    by_carrier.agg(*numbers, name="carriers").to("carriers", name="write-carriers")
    return app


def send(servers: str, days: int) -> int:
    """The tables, and the flights of the first days of 2013; how many flights."""
    from source_data import messages, read_tables

    from odradek.client import Admin, NewTopic, Producer

    tables = read_tables()
    first_ms = messages("flights", tables["flights"].head(1))[0].timestamp_ms or 0
    with Admin(servers) as admin:
        topics = {name: {**KEEP} for name in tables} | RESULTS
        admin.create_topics([NewTopic(name, 1, configs=how) for name, how in topics.items()])
    count = 0
    with Producer(servers, compression_type="lz4") as producer:
        for name, table in tables.items():
            for message in messages(name, table):
                when = message.timestamp_ms or first_ms
                if when < first_ms + days * 86_400_000:
                    early = (
                        when if name == "flights" else when - BEFORE_MS
                    )  # what is known when a flight leaves
                    producer.send(name, message.value, key=message.key, timestamp_ms=early)
                    count += name == "flights"
    return count


def chart(daily: pd.DataFrame, path: Path) -> None:
    """Mean delay of each day, of the largest carriers."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(10, 4.5))
    for carrier, colour in CARRIERS.items():
        own = daily[daily["carrier"] == carrier].sort_values("day")
        axes.plot(
            own["day"],
            own["mean_delay"],
            color=colour,
            label=carrier,
            linewidth=1.6,
            marker="o",
            markersize=3,
        )
    axes.set_title("Mean departure delay by day and carrier, from the topic daily", loc="left")
    axes.set_ylabel("minutes")
    axes.axhline(0, color="#999999", linewidth=0.6)
    axes.legend(frameon=False, ncols=len(CARRIERS))
    axes.spines[["top", "right"]].set_visible(False)
    figure.autofmt_xdate()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def read_daily(servers: str) -> pd.DataFrame:
    """The last version of each carrier's day."""
    import pandas as pd

    from odradek.views import TableView

    with TableView.open(servers, "daily", key="json") as view:
        rows = [{**row.key, **row.value} for row in view]
    return pd.DataFrame(rows).assign(day=lambda days: pd.to_datetime(days["window_start"], unit="ms"))


def watch(run: Run) -> None:
    """Ask the table of carriers while the program runs."""
    begun = time.monotonic()
    carriers = run["carriers"]
    while not run.wait(ASK_EVERY_S) and time.monotonic() < begun + WAIT_S:
        united = carriers.get("UA")
        if united is not None:
            print(
                f"  United, {carriers.freshness().status}: {united['flights']:,} flights, mean delay"
                f" {united['mean_delay']:.1f} min, longest {united['longest']:.0f} min"
            )
    carriers.wait_until("now")
    print("\nCarriers by mean delay")
    for row in sorted(carriers, key=lambda row: -row.value["mean_delay"]):
        print(f"  {row.key}  {row.value['flights']:6,} flights  {row.value['mean_delay']:5.1f} min")


def main() -> None:
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    days = int(sys.argv[1]) if len(sys.argv) > 1 else 14
    from local_broker import LocalBroker

    with LocalBroker() as broker, tempfile.TemporaryDirectory(prefix="live-tables-") as directory:
        count = send(broker.address, days)
        print(f"{count:,} flights of {days} days are in topics. Spark starts.")
        with flights(broker.address).start(checkpoint=directory, until_now=True) as run:
            watch(run)
        chart(read_daily(broker.address), CHART)
        print(f"Chart: {CHART}")


if __name__ == "__main__":
    main()
