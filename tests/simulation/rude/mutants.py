"""Planted bugs of the memory and the sockets that connections share."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from tests.simulation.mutant import Patches, mutant

from odradek.net.connection import Connection
from odradek.net.hangups import Hangups
from odradek.net.request_budget import RequestBudget, Share
from odradek.net.unread_answers import UnreadAnswers

_SCENARIO = "rude"


@mutant("a large request gives nothing back when it was answered", _SCENARIO)
def share_kept_after_the_answer() -> Patches:
    real = Share.give_back

    def give_back(self: Share) -> None:
        if not self.is_complete:
            real(self)

    yield patch.object(Share, "give_back", give_back)


@mutant("a connection that is lost in the middle of a frame gives nothing back", _SCENARIO)
def share_kept_after_the_end() -> Patches:
    real = Share.give_back

    def give_back(self: Share) -> None:
        if self.is_complete:
            real(self)

    yield patch.object(Share, "give_back", give_back)


@mutant("no frame is favoured: those that have begun wait for each other", _SCENARIO)
def no_one_is_favoured() -> Patches:
    real = RequestBudget.__init__

    def init(self: RequestBudget, *arguments: Any, **rest: Any) -> None:
        real(self, *arguments, **rest)
        self._common.limit_bytes += self._largest.limit_bytes
        self._largest.limit_bytes = 0

    yield patch.object(RequestBudget, "__init__", init)


@mutant("a peer that stands still keeps its place while others wait", _SCENARIO)
def no_one_is_overdue() -> Patches:
    yield patch.object(RequestBudget, "overdue", lambda self, now: None)


@mutant("a frame is received whatever is in flight", _SCENARIO)
def no_bound() -> Patches:
    def acquire(self: Share, wanted_bytes: int, least_bytes: int) -> bool:
        self._acquire_from(0, wanted_bytes)
        return True

    yield patch.object(Share, "acquire", acquire)


@mutant("a peer that leaves while its connection is paused is not noticed", _SCENARIO)
def hang_ups_unnoticed() -> Patches:
    yield patch.object(Hangups, "check", lambda self, now: [])


@mutant("every byte of a frame counts as activity", _SCENARIO)
def tricklers_are_active() -> Patches:
    real = Connection.buffer_updated

    def buffer_updated(self: Connection, nbytes: int) -> None:
        real(self, nbytes)
        self.last_active = self._server.now()

    yield patch.object(Connection, "buffer_updated", buffer_updated)


@mutant("what a connection holds for its peer is not forgotten when it ends", _SCENARIO)
def answers_kept_after_the_end() -> Patches:
    yield patch.object(UnreadAnswers, "forget", lambda self, connection: None)
