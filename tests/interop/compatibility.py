"""Writes docs/compatibility.md: which versions of each API the broker serves, and which of them real clients were seen to use.

    python -m tests.interop.compatibility

It runs every client that is here, unmodified, against one broker behind a proxy that notes API and version of each request. A
client that fails is named with what it said; one that is not on this machine is absent.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.odradek_node import OdradekNode
from benchmarks.peer import PeerAbsentError, PeerJars, cached_peer
from tests.contract.parity.page import parity_lines
from tests.golden.clients.record import clients_at_work
from tests.interop.kafka_tools.page import tool_lines
from tests.interop.languages.prepare import LANGUAGES, AbsentError, Language
from tests.interop.proxy import Proxy

from odradek.broker.handlers import Handlers
from odradek.client import Admin, NewTopic
from odradek.protocol import APIS, Api

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"
SECONDS_MAX = 120
_SETTINGS = {"group.initial.rebalance.delay.ms": "100", "offsets.topic.num.partitions": "5"}


@dataclass(slots=True, kw_only=True)
class ClientVersions:
    """One client: the versions it sent by API, and what went wrong, if anything."""

    name: str
    version: str
    versions: dict[int, set[int]] = field(default_factory=dict)
    trouble: str = ""


def main() -> int:
    try:
        jars: PeerJars | None = cached_peer()
    except PeerAbsentError:
        jars = None
    seen = []
    with Proxy() as proxy:
        advertised = {"advertised.listeners": f"PLAINTEXT://{proxy.bootstrap}"}
        node = OdradekNode(settings={**_SETTINGS, **advertised}).start()
        try:
            host, port = node.bootstrap.rsplit(":", 1)
            proxy.target = (host, int(port))
            for name, (version, work) in clients_at_work(jars).items():
                seen.append(_observe(proxy, name, version, work))
            seen += [_observe_language(proxy, node.bootstrap, language) for language in LANGUAGES.values()]
        finally:
            node.stop()
    PAGE.write_text(page(_merged(seen)), encoding="utf-8")
    for named in seen:
        sys.stdout.write(f"{named.name} {named.version}: {named.trouble or f'{len(named.versions)} APIs'}\n")
    return (
        1
        if any(seen_client.trouble and not seen_client.trouble.startswith("absent") for seen_client in seen)
        else 0
    )


def _observe(proxy: Proxy, name: str, version: str, work: Callable[[str], None]) -> ClientVersions:
    proxy.recorded.clear()
    seen_client = ClientVersions(name=name, version=version)
    try:
        work(proxy.bootstrap)
    except Exception as error:  # noqa: BLE001 - whatever a client raises is what the page must say
        seen_client.trouble = f"failed: {type(error).__name__}: {error}"
    for request in list(proxy.recorded):
        seen_client.versions.setdefault(request.api_key, set()).add(request.api_version)
    return seen_client


def _observe_language(proxy: Proxy, bootstrap: str, language: Language) -> ClientVersions:
    try:
        command = language.ready()
    except AbsentError as reason:
        return ClientVersions(name=language.title, version=language.version, trouble=f"absent: {reason}")

    topics = [f"{language.name}-source", f"{language.name}-sink"]
    with Admin(bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=2) for topic in topics])

    def work(address: str) -> None:
        for what, given in _steps(*topics):
            process = subprocess.run(
                [*command, what, address, json.dumps(given)],
                capture_output=True,
                text=True,
                timeout=SECONDS_MAX,
                check=False,
            )
            if process.returncode != 0:
                raise RuntimeError(f"{what}: {process.stderr.strip().splitlines()[-1]}")

    return _observe(proxy, language.title, language.version, work)


def _steps(source: str, sink: str) -> Iterable[tuple[str, dict[str, object]]]:
    values = ["one", "two"]
    yield "produce", {"topic": source, "values": values}
    yield "consume", {"topic": source, "count": 2}
    yield "group", {"topic": source, "group": f"{source}-group", "count": 2}
    yield "rebalance", {"topic": source, "group": f"{source}-both", "count": 2}
    if source.startswith(("franz", "java")):
        yield "rebalance", {"topic": source, "group": f"{source}-848", "count": 2, "protocol": "consumer"}
    if source.startswith("java"):
        yield "share-two", {"topic": sink, "group": f"{source}-932"}
    yield "copy", {"topic": source, "sink": sink, "group": f"{source}-copy", "id": source, "count": 2}
    yield "transact", {"topic": source, "id": f"{source}-tx", "values": values}
    yield "admin", {"topic": f"{source}-made", "group": f"{source}-group"}


def _merged(seen: Iterable[ClientVersions]) -> list[ClientVersions]:
    """Kafka's Java tools and Kafka's Java clients are the same client."""
    by_name: dict[str, ClientVersions] = {}
    for named in seen:
        known = by_name.setdefault(named.name, named)
        if known is not named:
            known.trouble = known.trouble or named.trouble
            for key, versions in named.versions.items():
                known.versions.setdefault(key, set()).update(versions)
    return list(by_name.values())


def page(seen: list[ClientVersions]) -> str:
    """The page, from what was seen."""
    head = [
        "# Compatibility",
        "",
        "Every API that the broker serves, in every version that it offers, and the versions that unmodified clients were seen",
        "to send to it while they produced, consumed (in groups of both protocols where they have them), committed, wrote in",
        "transactions and administrated. Generated by `python -m tests.interop.compatibility`; the tests under `tests/interop`",
        "say what works in detail, and `tests/scenarios/test_every_version.py` calls each API in every version.",
        "",
        "| client | version | |",
        "|---|---|---|",
        *(f"| {named.name} | {named.version} | {named.trouble or 'all of it worked'} |" for named in seen),
        "| @confluentinc/kafka-javascript | | absent: its build downloads the sources of other projects |",
        "",
        "Applications are tested, too, some of them killed half-way (`tests/interop/languages/test_applications.py`): a",
        "Kafka Streams word count with exactly-once, in a classic group and as two instances in a streams group,",
        "FastStream, Quix Streams, and Spark 4.0.0 with its own connector",
        "(`spark-sql-kafka-0-10`), batch and streaming. Three instances of a Kafka Streams application that counts, joins and",
        "counts in windows, with `group.protocol=streams`, are killed in turn (`test_streams_under_kills.py`).",
        "",
        "Clients that push their metrics (KIP-714) are tested with librdkafka, Kafka's Java producer and franz-go: what",
        "they push is read, added up and shown for each client (`tests/interop/admin/test_client_metrics.py`). sarama and",
        "kafkajs push none.",
        "",
        "A client takes the highest version that both sides know: several in one cell mean that its parts differ.",
        "",
        "| key | API | served | " + " | ".join(named.name for named in seen) + " |",
        "|---:|---|---|" + "---|" * len(seen),
    ]
    handlers = Handlers()
    rows = []
    for key in sorted(key for key in handlers if not APIS[key].internal):
        api = APIS[key]
        cells = [_range(seen_client.versions.get(key, set())) for seen_client in seen]
        served = f"{api.versions.min}–{api.latest_stable}"
        rows.append(f"| {key} | {api.name} | {served} | " + " | ".join(cells) + " |")
    between_brokers = [api for api in APIS.values() if api.internal and api.key in handlers]
    missing = [api for api in APIS.values() if api.key not in handlers]
    tail = ["", f"Served to brokers alone: {_named(between_brokers)}."]
    if missing:
        tail += ["", f"Declared, not served: {_named(missing)}."]
    return "\n".join([*head, *rows, *tail, "", *tool_lines(), *parity_lines()]) + "\n"


def _named(apis: Iterable[Api]) -> str:
    return ", ".join(f"{api.name} ({api.key})" for api in sorted(apis, key=lambda api: api.key))


def _range(versions: set[int]) -> str:
    return ", ".join(str(version) for version in sorted(versions))


if __name__ == "__main__":
    sys.exit(main())
