"""Who takes part: Apache Kafka with its own defaults, and Odradek with each of its two promises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.odradek_node import Node, OdradekNode
from benchmarks.peer import KafkaNode, free_port
from benchmarks.peer.fetch import PeerJars

PEER = "kafka"
DURABLE = "odradek"
PAGE_CACHE = "odradek-page-cache"


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One broker in one setting. `make` builds a node on a directory; `promise` says what acks=all means there."""

    key: str
    title: str
    promise: str
    make: Callable[[Path], Node] = field(compare=False)


def contenders(jars: PeerJars | None) -> list[Contender]:
    """All contenders; without `jars` Odradek's alone."""
    ours = [
        Contender(
            key=DURABLE,
            title="Odradek",
            promise="acks=all waits for fsync (Odradek's default)",
            make=lambda directory: OdradekNode(directory=directory, port=free_port()),
        ),
        Contender(
            key=PAGE_CACHE,
            title="Odradek, page cache",
            promise="log.flush.before.ack=false: the page cache is enough, as for Kafka",
            make=lambda directory: OdradekNode(
                directory=directory, port=free_port(), settings={"log.flush.before.ack": "false"}
            ),
        ),
    ]
    if jars is None:
        return ours
    peer = Contender(
        key=PEER,
        title=f"Apache Kafka {jars.version}",
        promise="Kafka's default flush: the page cache is enough; default settings, 1 GiB heap",
        make=lambda directory: KafkaNode(jars, directory=directory),
    )
    return [peer, *ours]
