"""Addresses of the other brokers, and the connections to them.

A broker may have two addresses for others: the listener for brokers, and its control plane, for what they ask of it as the
controller (KIP-291). The connections to either, and their security, are apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from odradek.cluster.image import BrokerImage
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.protocol import Message
from odradek.runtime.ports import Runtime

if TYPE_CHECKING:
    from odradek.net import peers as net_peers
    from odradek.net.outgoing_security import OutgoingSecurity
    from odradek.net.peers import Peers
else:
    net_peers = lazy("odradek.net.peers")

ListenerSecurity = Callable[[], "OutgoingSecurity | None"]
"""Returns the security of a new connection to a listener; None for plain text."""
_LOOPBACK: Final = "127.0.0.1"
NO_LISTENERS: Final[Mapping[str, ListenerSecurity]] = MappingProxyType({})


def _plain() -> None:
    return None


class OtherBrokers:
    """The addresses of the other brokers and the connections to them. Used on the event loop only. Nothing is imported or
    connected before there is a broker to ask."""

    def __init__(
        self,
        runtime: Runtime,
        me: BrokerId,
        broker_of: Callable[[BrokerId], BrokerImage | None],
        *,
        request_timeout_s: float,
        on_lost: Callable[[BrokerId], None],
        security: ListenerSecurity = _plain,
        control_planes: Mapping[str, ListenerSecurity] = NO_LISTENERS,
    ) -> None:
        """`broker_of`: as the newest image has it. `control_planes`: listeners whose settings this broker has, by name."""
        self._runtime = runtime
        self._me = me
        self._broker_of = broker_of
        self._request_timeout_s = request_timeout_s
        self._on_lost = on_lost
        self._security = security
        self._control_planes = control_planes
        self._located: dict[BrokerId, BrokerImage] = {}
        self._peers: Peers | None = None
        self._control_peers: Peers | None = None

    @property
    def peers(self) -> Peers:
        """The other brokers, at their listeners for brokers."""
        if self._peers is None:
            self._peers = self._new_peers(self.address_of, lambda _: self._security())
        return self._peers

    async def send_to_control_plane(
        self, broker: BrokerId, api_key: int, request: Message, *, timeout_s: float | None, lane: str
    ) -> Message:
        """Sends to the broker's control plane. Uses its listener for brokers if it has no control plane, or one for which this
        broker has no settings: so a cluster gets control planes broker by broker. Raises PeerUnreachable.
        """
        peers = self.peers if self._control_address_of(broker) is None else self._at_control_planes()
        return await peers.send(broker, api_key, request, timeout_s=timeout_s, lane=lane)

    def address_of(self, broker: BrokerId) -> tuple[str, int] | None:
        """Returns the address of a broker's listener for brokers; None for a broker that is not known."""
        known = self._known(broker)
        return None if known is None else (known.host or _LOOPBACK, known.port)

    def locate(self, broker: BrokerImage) -> bool:
        """Notes the addresses of a broker, which the image may not have yet. Returns whether they are new."""
        known = self._known(broker.broker_id)
        if known is not None and _addresses(known) == _addresses(broker):
            return False
        self._located[broker.broker_id] = broker
        self.forget(broker.broker_id)
        return True

    def image_is_new(self) -> None:
        """Forgets all located addresses: the new image replaces them."""
        self._located.clear()

    def forget(self, broker: BrokerId) -> None:
        """Closes the connections to the broker: requests under way fail now."""
        for peers in self._all():
            peers.forget(broker)

    async def close(self) -> None:
        for peers in self._all():
            await peers.close()

    def _all(self) -> list[Peers]:
        return [peers for peers in (self._peers, self._control_peers) if peers is not None]

    def _at_control_planes(self) -> Peers:
        if self._control_peers is None:
            self._control_peers = self._new_peers(self._control_address_of, self._control_security_of)
        return self._control_peers

    def _new_peers(
        self,
        address_of: Callable[[BrokerId], tuple[str, int] | None],
        security: Callable[[BrokerId], OutgoingSecurity | None],
    ) -> Peers:
        return net_peers.Peers(
            address_of,
            client_id=f"broker-{self._me}",
            now=self._runtime.clock.monotonic,
            request_timeout_s=self._request_timeout_s,
            chance=self._runtime.entropy.uniform,
            on_lost=self._on_lost,
            security=security,
        )

    def _control_address_of(self, broker: BrokerId) -> tuple[str, int] | None:
        known = self._known(broker)
        name = None if known is None else known.control_plane
        if known is None or name is None or name not in self._control_planes:
            return None
        host, port = known.endpoints[name]
        return host or _LOOPBACK, port

    def _control_security_of(self, broker: BrokerId) -> OutgoingSecurity | None:
        known = self._known(broker)
        assert known is not None, "asked right after the address"
        assert known.control_plane is not None, "the same"
        return self._control_planes[known.control_plane]()

    def _known(self, broker: BrokerId) -> BrokerImage | None:
        """Returns the broker with its last known addresses; None for a broker that is not known."""
        return self._located.get(broker) or self._broker_of(broker)


def _addresses(broker: BrokerImage) -> tuple[str, int, str | None, tuple[str, int] | None]:
    """Returns the addresses at which other brokers reach the broker."""
    control = None if broker.control_plane is None else broker.endpoints[broker.control_plane]
    return broker.host or _LOOPBACK, broker.port, broker.control_plane, control
