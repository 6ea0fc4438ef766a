"""Apache Kafka itself as the peer: fetched with Maven, run as one KRaft node with its own defaults."""

from benchmarks.peer.fetch import PeerAbsentError, PeerJars, cached_peer, fetch_peer
from benchmarks.peer.node import KafkaNode, free_port
from benchmarks.peer.programs import java_program

__all__ = [
    "KafkaNode",
    "PeerAbsentError",
    "PeerJars",
    "cached_peer",
    "fetch_peer",
    "free_port",
    "java_program",
]
