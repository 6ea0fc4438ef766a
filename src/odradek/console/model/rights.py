"""What the principal may do to the cluster as a whole: pages offer nothing else. The brokers decide in any case."""

from __future__ import annotations

from typing import Final

from odradek.client.aio import AsyncAdmin
from odradek.client.network.errors import explain
from odradek.model.errors import ErrorCode, KafkaError, OdradekError
from odradek.protocol.acls import AclOperation
from odradek.runtime.ports import Clock
from odradek.telemetry import events

_log = events.get("console")

CALL_S: Final = 3.0
AGE_S: Final = 10.0


class ClusterRights:
    """Asks for the rights of one principal, and remembers them for some seconds. Used on the background loop."""

    def __init__(self, admin: AsyncAdmin, clock: Clock) -> None:
        self._admin = admin
        self._clock = clock
        self._read_s = -AGE_S
        self._operations: frozenset[AclOperation] | None = None

    async def operations(self) -> frozenset[AclOperation] | None:
        """Returns the operations; None where the brokers do not tell, so that everything is offered and they decide."""
        now_s = self._clock.monotonic()
        if now_s - self._read_s < AGE_S:
            return self._operations
        try:
            self._operations = await self._admin.describe_cluster_operations(timeout_s=CALL_S)
        except KafkaError as error:
            if error.code is not ErrorCode.UNSUPPORTED_VERSION:
                _log.warning("console_rights_unread", reason=explain(error))
            self._operations = None
        except OdradekError as error:
            _log.warning("console_rights_unread", reason=explain(error))
            self._operations = None
        self._read_s = now_s
        return self._operations
