"""Our Python client beside confluent-kafka (librdkafka), aiokafka and kafka-python, against one running broker.

    python -m benchmarks.clients [--bootstrap HOST:PORT] [--rounds N] [--megabytes N] [--json FILE] [--publish]

Without --bootstrap it runs a broker of its own. Every client gets the same settings (acks=all, idempotence, 5 ms linger, one
batch size, one partition) and one thread of the caller's. Time runs from when a client has sent its first record, or from its
seek to the start once it has got its first ones: starting up is not measured, what it fetches ahead is. Rounds are interleaved;
each line has the median rates, how many times our rate is the other's (the median, the lowest and the highest ratio of any
round), and the same of the CPU that the client process took. The others have no counterpart to Arrow: their records are read
there as well. --publish writes the table into docs/benchmarks.md and its history.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.metadata
import sys
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:  # run as a file
    sys.path.insert(0, str(ROOT))

from benchmarks import report  # noqa: E402
from benchmarks.odradek_node import OdradekNode  # noqa: E402
from benchmarks.python_clients import frames, page, records  # noqa: E402
from benchmarks.python_clients.job import OURS, Job, Watch, Work  # noqa: E402
from benchmarks.python_clients.page import Measurement  # noqa: E402
from odradek import Admin, NewTopic  # noqa: E402

VALUE_BYTES: Final = (100, 1_024, 16_384)
WRITING: Final[dict[str, Mapping[str, Work]]] = {
    "produce": records.PRODUCERS,
    "send a polars frame": frames.FRAME_SENDERS,
}
READING: Final[dict[str, Mapping[str, Work]]] = {
    "consume": records.CONSUMERS,
    "consume as Arrow": records.ARROW_CONSUMERS,
    "consume into polars": frames.FRAME_READERS,
}
FILLS: Final = "produce"
"""What leaves the topic behind that all read."""
CLIENTS: Final = tuple(records.PRODUCERS)
PAGE: Final = ROOT / "docs" / "benchmarks.md"


def measure(what: str, client: str, work: Work, job: Job, round_number: int) -> Measurement:
    gc.collect()
    watch = Watch()
    work(job, watch)
    spent = watch.read()
    return Measurement(
        what=what,
        value_bytes=job.value_bytes,
        client=client,
        round_number=round_number,
        records_per_second=job.record_count / spent.wall,
        user_seconds_per_million=spent.user / job.record_count * 1e6,
        system_seconds_per_million=spent.system / job.record_count * 1e6,
    )


@contextmanager
def broker(bootstrap: str | None) -> Iterator[str]:
    """Yields the address of the running broker, or of a new broker that runs until the end."""
    if bootstrap:
        yield bootstrap
    else:
        with OdradekNode() as node:
            yield node.bootstrap


@contextmanager
def new_topic(bootstrap: str) -> Iterator[str]:
    """A topic with one partition, gone afterwards."""
    name = f"bench-clients-{uuid.uuid4().hex[:12]}"
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(name, partitions=1)])
        try:
            yield name
        finally:
            admin.delete_topics([name])


def run_round(
    bootstrap: str, value_bytes: int, record_count: int, clients: set[str], round_number: int
) -> list[Measurement]:
    """Every client once, each writing to a topic of its own, then all reading the one that we filled."""
    measurements = []
    with new_topic(bootstrap) as full:
        for what, work_of in WRITING.items():
            for client, work in _rotated(work_of, clients, round_number):
                fills = what == FILLS and client == OURS
                with nullcontext(full) if fills else new_topic(bootstrap) as topic:
                    job = Job(
                        bootstrap=bootstrap, topic=topic, value_bytes=value_bytes, record_count=record_count
                    )
                    measurements.append(measure(what, client, work, job, round_number))
        job = Job(bootstrap=bootstrap, topic=full, value_bytes=value_bytes, record_count=record_count)
        for what, work_of in READING.items():
            for client, work in _rotated(work_of, clients, round_number):
                measurements.append(measure(what, client, work, job, round_number))
    return measurements


def _rotated(work_of: Mapping[str, Work], clients: set[str], shift: int) -> list[tuple[str, Work]]:
    """The chosen clients, beginning with another one each round."""
    chosen = [
        (client, work)
        for client, work in work_of.items()
        if client == OURS or client.split(",")[0] in clients
    ]
    shift %= len(chosen)
    return chosen[shift:] + chosen[:shift]


def facts_of(options: argparse.Namespace) -> dict[str, Any]:
    versions = [f"{client} {importlib.metadata.version(client)}" for client in (*CLIENTS, "polars")]
    return {
        "machine": report.machine(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "rounds": options.rounds,
        "megabytes": options.megabytes,
        "clients": ", ".join(versions),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bootstrap", help="host:port of a running broker, Odradek or Kafka")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--megabytes", type=int, default=40, help="about how much each client moves in a round"
    )
    parser.add_argument(
        "--values", type=int, nargs="*", default=list(VALUE_BYTES), help="sizes of values in bytes"
    )
    parser.add_argument("--clients", nargs="*", default=list(CLIENTS), help="which to compare with")
    parser.add_argument("--json", type=Path, help="write every measurement and the table there")
    parser.add_argument("--publish", action="store_true", help=f"write the table into {PAGE.name}")
    options = parser.parse_args()
    if options.publish and (tuple(options.values) != VALUE_BYTES or set(options.clients) != set(CLIENTS)):
        parser.error("--publish needs a whole run: leave out --values and --clients")
    importlib.import_module("pyarrow")  # 0.1 s and more, which are not to be measured
    measurements: list[Measurement] = []
    with broker(options.bootstrap) as bootstrap:
        for value_bytes in options.values:
            record_count = max(1_000, min(400_000, options.megabytes * 1_000_000 // value_bytes))
            for round_number in range(options.rounds):
                measurements += run_round(
                    bootstrap, value_bytes, record_count, set(options.clients), round_number
                )
    print(page.markdown(page.rows_of(measurements)))
    facts = facts_of(options)
    if options.json:
        page.write_json(options.json, facts, measurements)
    if options.publish:
        page.publish(PAGE, facts, measurements)


if __name__ == "__main__":
    main()
