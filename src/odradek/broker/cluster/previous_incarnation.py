"""Finds out, at the start, which process is registered under this broker's id: its own earlier one, or one that still runs.

Two processes with the same directory id run on the same data, one of them on a copy. The lock on a data directory keeps two
from the same files, but not from a copy elsewhere. So before a broker takes over a registration of another session, it asks
the process at the registered address:

- it answers that it is this broker, and it is not this very process: it keeps its place, and we must not start;
- the connection is refused, or something else answers there (for example this process, on the port that its
  former life had): the former life is dead, and its registration is taken over at once. But a disk that is
  known to be an older copy waits;
- there is no answer: we wait for the end of its session, which the registry sees to.

A registration with the id of another data directory is of this broker before its disk was lost, or of a broker that was given
the same broker.id by mistake. It is asked likewise. But a loopback address is then no evidence of death: the mistake may have
been made on another machine, where the same address leads elsewhere.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.cluster.registration import Registration, registration_from
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.model.ids import BrokerId
from odradek.model.lazy import lazy
from odradek.registry import Node, Registry
from odradek.runtime.ports import Runtime
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.net import peers as net_peers
    from odradek.net.outgoing_security import OutgoingSecurity
    from odradek.protocol.messages.cluster import identify_broker
else:
    net_peers = lazy("odradek.net.peers")
    identify_broker = lazy("odradek.protocol.messages.cluster.identify_broker")

_log = events.get("broker")
IDENTIFY_BROKER: Final = 10002
_ASK_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.25
_WAIT_SECONDS_MIN: Final = 120.0
_SESSIONS_MAX: Final = 3.0
"""The session timeouts after which the wait ends: a dead session ends after one, counted from when the registry noticed."""
_LOOPBACK: Final = "127.0.0.1"


class IncarnationEvidence(Enum):
    """The outcome of the requests."""

    LIVES = "it lives"
    IS_DEAD = "it is dead"
    IS_SILENT = "it does not answer"


class PreviousIncarnation:
    """Waits at the start until no earlier process of this broker runs: `await gone()` before the broker registers for the
    first time."""

    def __init__(
        self,
        runtime: Runtime,
        registry: Registry,
        registration: Registration,
        *,
        incarnation: str,
        is_older_copy: Callable[[], bool],
        session_timeout_s: float = 0.0,
        security: Callable[[], OutgoingSecurity | None] = lambda: None,
    ) -> None:
        self._runtime = runtime
        self._registry = registry
        self._me = registration
        self._incarnation = incarnation
        self._is_older_copy = is_older_copy
        self._security = security
        self._wait_s_max = max(_WAIT_SECONDS_MIN, _SESSIONS_MAX * session_timeout_s)

    async def gone(self) -> int | None:
        """Returns when no one else is this broker any more. The session of a dead former life, if it is registered yet.

        DUPLICATE_BROKER_REGISTRATION when someone is; RegistryError.
        """
        began, was_logged = self._runtime.clock.monotonic(), False
        while (node := await self._registered()) is not None:
            other = registration_from(self._me.broker_id, node.data)
            is_same_data = other.directory_id == self._me.directory_id
            sign = await self._probe(other)
            if sign is IncarnationEvidence.LIVES and is_same_data:
                raise self._duplicate(other, "it answers there, so this data directory is a copy of its own")
            if sign is IncarnationEvidence.LIVES:
                raise self._duplicate(other, "it answers there, with data of its own")
            is_evidence = is_same_data or not _is_loopback(other.host)
            if sign is IncarnationEvidence.IS_DEAD and is_evidence and not self._is_older_copy():
                return node.owner
            if not was_logged:
                _log.warning(
                    "registration_awaited",
                    broker=self._me.broker_id,
                    at=f"{other.host or _LOOPBACK}:{other.port}",
                    reason=f"{sign.value}, and its session has not ended yet",
                )
                was_logged = True
            if self._runtime.clock.monotonic() - began > self._wait_s_max:
                raise self._duplicate(other, "its session is alive, though it does not answer")
            await asyncio.sleep(_LOOK_SECONDS)
            await self._registry.sync()
        return None

    async def _registered(self) -> Node | None:
        """Returns the registration of this broker in another session."""
        node = await self._registry.get(self._me.path)
        return None if node is None or node.owner == self._registry.session_id else node

    async def _probe(self, other: Registration) -> IncarnationEvidence:
        # Not needed where no one is registered.

        me = self._me.broker_id
        peers = net_peers.Peers(
            lambda _: (other.host or _LOOPBACK, other.port),
            client_id=f"broker-{me}",
            now=self._runtime.clock.monotonic,
            request_timeout_s=_ASK_SECONDS,
            chance=self._runtime.entropy.uniform,
            security=lambda _: self._security(),
        )
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                response = await peers.send(
                    BrokerId(me), IDENTIFY_BROKER, identify_broker.IdentifyBrokerRequest(broker_id=me)
                )
        except net_peers.PeerUnreachable as error:
            return IncarnationEvidence.IS_DEAD if error.refused else IncarnationEvidence.IS_SILENT
        except (OdradekError, TimeoutError):
            return IncarnationEvidence.IS_SILENT
        finally:
            await peers.close()
        assert isinstance(response, identify_broker.IdentifyBrokerResponse)
        lives = response.broker_id == me and response.incarnation != self._incarnation
        return IncarnationEvidence.LIVES if lives else IncarnationEvidence.IS_DEAD

    def _duplicate(self, other: Registration, why: str) -> KafkaError:
        return KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"broker {self._me.broker_id} is running already, at {other.host or 'this machine'}:{other.port}: {why}. "
            "That one keeps the id: give this broker another broker.id and an empty data directory",
        )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host or _LOOPBACK).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
