"""The recurring work of a broker: what it does again and again, how often, and the last note on its disks when it stops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from odradek.broker.background_work import Round
from odradek.broker.cluster.disk_identity import DiskIdentity
from odradek.broker.requests.context import BrokerContext
from odradek.broker.security.listeners import CERTIFICATES_LOOK_SECONDS, KEYS_LOOK_SECONDS, SecureListeners
from odradek.config.broker import BrokerConfig
from odradek.model.errors import KafkaError, OdradekError
from odradek.model.lazy import lazy
from odradek.registry import RegistryConflict, RegistryError
from odradek.telemetry import events

if TYPE_CHECKING:
    from odradek.broker.audit import wiring as audit_wiring
    from odradek.broker.audit.trail import AuditTrail
else:
    audit_wiring = lazy("odradek.broker.audit.wiring")

_log = events.get("broker")
_STORAGE_CHECK_SECONDS: Final = 2.0
_DISKS_CHECK_SECONDS: Final = 2.0
_LAST_WORD_SECONDS: Final = 2.0
_MADE_LOGS_SECONDS: Final = 1.0
_FLUSH_CHECK_SECONDS: Final = 0.5
_EXTENTS_SECONDS: Final = 1.0
"""What was acknowledged since may be cut without notice if a disk loses it just when the broker crashes."""


class RecurringWork:
    """The recurring work of one broker that has joined its cluster."""

    def __init__(
        self,
        broker: BrokerContext,
        identity: DiskIdentity,
        listeners: SecureListeners,
        trail: AuditTrail | None,
    ) -> None:
        self._broker = broker
        self._identity = identity
        self._listeners = listeners
        self._trail = trail
        self._seen_end_offsets = 0
        self._is_ending = False

    def rounds(self, config: BrokerConfig) -> list[Round]:
        """Returns all that is done from time to time. `config`: the settings at the start, for intervals that stay."""
        replicas = self._broker.replicas
        storage, maintenance = config.storage, replicas.maintenance
        audit = [] if self._trail is None else [Round("audit", audit_wiring.FLUSH_SECONDS, self._trail.flush)]
        return [
            *audit,
            Round("retention", storage.log_retention_check_interval_ms / 1000, maintenance.apply_retention),
            Round(
                "checkpoints",
                storage.log_flush_offset_checkpoint_interval_ms / 1000,
                self._write_checkpoints,
            ),
            Round("extents", _EXTENTS_SECONDS, replicas.directories.write_extents),
            Round("certificates", CERTIFICATES_LOOK_SECONDS, self._listeners.reload_certificates),
            Round("issuer keys", KEYS_LOOK_SECONDS, self._listeners.refresh_keys),
            Round("delegation tokens", config.delegation.expiry_check_interval_ms / 1000, self._sweep_tokens),
            Round("storage", _STORAGE_CHECK_SECONDS, replicas.try_to_recover),
            Round("disks", _DISKS_CHECK_SECONDS, replicas.check_disks),
            Round("made logs", _MADE_LOGS_SECONDS, replicas.directories.record_created_logs),
            Round("compaction", lambda: self._broker.config.cleaner.backoff_ms / 1000, maintenance.compact),
            Round("flush by time", _FLUSH_CHECK_SECONDS, maintenance.flush_by_time),
            Round(
                "replicas in sync",
                config.replication.replica_lag_time_max_ms / 2000,
                maintenance.check_in_sync_replicas,
            ),
            Round(
                "share state",
                config.share_coordinator.state_topic_prune_interval_ms / 1000,
                self._prune_share_state,
            ),
        ]

    def end(self) -> None:
        """Begins nothing more that needs the cluster or the logs: the broker stops."""
        self._is_ending = True

    async def note_clean_end(self) -> None:
        """The logs are closed. A note that cannot be written now makes no difference to a start from these
        disks."""
        try:
            async with asyncio.timeout(_LAST_WORD_SECONDS):
                await self._identity.raise_generation(is_clean=True)
        except (OdradekError, TimeoutError) as error:
            _log.warning("clean_end_not_noted", reason=str(error))

    async def _sweep_tokens(self) -> None:
        if not self._is_ending:
            await self._listeners.remove_tokens_that_are_over(self._broker.cluster)

    async def _prune_share_state(self) -> None:
        shares = self._broker.kinds.shares.existing_parts
        if shares is not None:
            await shares.service.prune()

    async def _write_checkpoints(self) -> None:
        if self._is_ending:
            return
        maintenance = self._broker.replicas.maintenance
        await maintenance.write_checkpoints()
        end_offsets = maintenance.end_offsets
        if end_offsets != self._seen_end_offsets:
            self._seen_end_offsets = end_offsets
            try:
                await self._identity.raise_generation()
            except (RegistryConflict, RegistryError) as error:  # the next time
                _log.info("generation_not_raised", reason=str(error))
            except KafkaError as error:
                self._broker.cluster.give_up(error)
