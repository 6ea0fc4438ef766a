"""Real brokers for tests of applications, started in a few hundred milliseconds, without a JVM or a container."""

from odradek.testing.cluster import Cluster
from odradek.testing.local import LocalBroker

__all__ = ["Cluster", "LocalBroker"]
