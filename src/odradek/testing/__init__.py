"""For tests of applications: a real broker in a few hundred milliseconds, without a JVM or a container."""

from odradek.testing.cluster import Cluster
from odradek.testing.local import LocalBroker

__all__ = ["Cluster", "LocalBroker"]
