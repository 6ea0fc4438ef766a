"""Decides when a client bootstraps again: `metadata.recovery.strategy` and `metadata.recovery.rebootstrap.trigger.ms`
(KIP-899, KIP-1102). Pure: times are arguments.

A refresh of the metadata asks the brokers of the last answer first. With the strategy `rebootstrap` it
continues with the bootstrap list when all of them have failed. It gives them up and asks the bootstrap list
alone when they have not answered for the trigger's time since the first failure began, or when a broker
answers REBOOTSTRAP_REQUIRED. With `none` it asks the bootstrap list until one broker has answered, and never
again.
"""

from __future__ import annotations

from typing import Final

from odradek.client.settings.settings import ClientSettings

NOT_ASKED_AGAIN: Final = "metadata.recovery.strategy=none: bootstrap.servers is not asked again"


class MetadataRecovery:
    """The state of one client's recovery."""

    __slots__ = ("_failed", "_has_given_up", "_is_required", "_since", "_trigger_s", "is_enabled")

    def __init__(self, settings: ClientSettings) -> None:
        self.is_enabled: Final = settings.metadata_recovery_strategy.lower() == "rebootstrap"
        self._trigger_s: Final = settings.metadata_recovery_rebootstrap_trigger_ms / 1000
        self._since: float | None = None
        """The time at which the first refresh since the last success began."""
        self._failed = False
        self._is_required = False
        self._has_given_up = False

    def refresh_began(self, now: float) -> None:
        if self._since is None:
            self._since = now

    def succeeded(self) -> None:
        self._since = None
        self._failed = self._is_required = self._has_given_up = False

    def broker_failed(self) -> None:
        """Notes that a broker of the last answer did not answer a refresh."""
        self._failed = True

    def required(self) -> None:
        """Notes that a broker answered REBOOTSTRAP_REQUIRED, or used up the trigger's time."""
        self._is_required = True

    def give_up(self) -> bool:
        """Notes that the brokers of the last answer are given up; returns whether they were not before."""
        is_news = not self._has_given_up
        self._has_given_up = True
        return is_news

    def is_due(self, now: float) -> bool:
        """Returns whether the brokers of the last answer are given up."""
        if not self.is_enabled or self._since is None:
            return False
        return self._is_required or (self._failed and now - self._since >= self._trigger_s)

    def left_s(self, now: float) -> float | None:
        """Returns how long a broker of the last answer may take before recovery is due; None without a limit."""
        if not self.is_enabled or self._since is None or not self._trigger_s:
            return None
        return max(0.0, self._trigger_s - (now - self._since))
