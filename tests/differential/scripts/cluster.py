"""What a broker tells about itself and its cluster: nodes, disks, producers, quorum, features, elections, moves."""

from tests.differential.asker import Asker
from tests.differential.requests import batch, make_topic, produce

from odradek.protocol.messages.metadata.describe_cluster import DescribeClusterRequest
from odradek.protocol.messages.topics.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def script(peer: Asker) -> None:
    make_topic(peer, "cl-one", 2)
    peer.quietly(produce("cl-one", batch("a")), 12)
    for version in (0, 1, 2):
        peer.ask(f"the cluster, version {version}", DescribeClusterRequest(), version)
    peer.ask("with what is allowed", DescribeClusterRequest(include_cluster_authorized_operations=True))
    peer.ask("its controllers", DescribeClusterRequest(endpoint_type=2))
    peer.ask("an endpoint that does not exist", DescribeClusterRequest(endpoint_type=9))
    peer.ask("with brokers that are fenced", DescribeClusterRequest(include_fenced_brokers=True))
    for version in (1, 2, 3, 4, 5):
        peer.ask(f"disks, version {version}", _disks("cl-one", 0, 1), version, only=_without_bytes)
    peer.ask("disks for an unknown topic", _disks("cl-none", 0), only=_without_bytes)
    peer.ask("disks for an unknown partition", _disks("cl-one", 7), only=_without_bytes)
    peer.ask("disks for nothing", DescribeLogDirsRequest(topics=[]), only=_without_bytes)


def _disks(name: str, *partitions: int) -> DescribeLogDirsRequest:
    return DescribeLogDirsRequest(topics=[DescribableLogDirTopic(topic=name, partitions=list(partitions))])


def _without_bytes(response: object) -> object:
    """The size of the disk is the machine's."""
    results = [
        entry.replace(total_bytes=int(entry.total_bytes > 0), usable_bytes=int(entry.usable_bytes > 0))
        for entry in response.results
    ]
    return response.replace(results=results)
