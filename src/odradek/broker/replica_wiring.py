"""Makes what replicas need of the cluster, once the first of them has a follower or a leader on another broker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from odradek.broker.cluster.link import ClusterLink
from odradek.broker.requests.context import ApiHandler, BrokerContext, RequestContext
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.net.connection import Connection
from odradek.protocol import APIS, Message
from odradek.replication.in_sync import IsrProposal
from odradek.replication.leader_role import LeaderRole
from odradek.runtime.ports import Runtime

if TYPE_CHECKING:
    from odradek.replication import isr_proposals, replica_fetchers
    from odradek.replication.isr_proposals import AlterPartitions
else:
    isr_proposals = lazy("odradek.replication.isr_proposals")
    replica_fetchers = lazy("odradek.replication.replica_fetchers")

_NO_CONNECTION: Final = cast(Connection, None)


class Proposals:
    """The `IsrProposals` of this broker's partitions; the controller may be this broker."""

    def __init__(
        self,
        cluster: ClusterLink,
        me: BrokerId,
        serve: Callable[[int], ApiHandler],
        broker: Callable[[], BrokerContext],
    ) -> None:
        self._cluster = cluster
        self._me = me
        self._serve = serve
        self._broker = broker
        self._alter: AlterPartitions | None = None

    def propose(self, leader: LeaderRole, proposal: IsrProposal) -> None:
        if self._alter is None:
            self._alter = isr_proposals.AlterPartitions(
                self._send_to_controller, broker_id=self._me, broker_epoch=lambda: self._cluster.broker_epoch
            )
        self._alter.propose(leader, proposal)

    async def close(self) -> None:
        if self._alter is not None:
            await self._alter.close()

    async def _send_to_controller(self, api_key: int, request: Message) -> Message:
        if not self._cluster.leads:
            return await self._cluster.send_to_controller(api_key, request)
        here = RequestContext(
            connection=_NO_CONNECTION, api_version=APIS[api_key].latest_stable, client_id="broker"
        )
        return await cast(Awaitable[Message], self._serve(api_key).handle(self._broker(), here, request))


def fetchers(
    runtime: Runtime, cluster: ClusterLink, me: BrokerId, broker: Callable[[], BrokerContext]
) -> replica_fetchers.ReplicaFetchers:
    """Returns the fetchers of this broker's replicas."""
    own_fetchers = replica_fetchers.ReplicaFetchers(
        runtime,
        cluster.peers,
        me=me,
        broker_epoch=lambda: cluster.broker_epoch,
        config=lambda: broker().config.replication,
    )
    own_fetchers.on_copied = lambda size_bytes: broker().traffic.copied(size_bytes)
    return own_fetchers
