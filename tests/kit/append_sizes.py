"""How many batches each append of a leader has."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.replication.leader_role import LeaderRole
from odradek.storage.log.results import AppendResult


def append_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns a list that grows by the number of batches of each append from now on."""
    sizes: list[int] = []
    real = LeaderRole.append

    def append(self: LeaderRole, batches: Any, **how: Any) -> AppendResult:
        sizes.append(len(batches))
        return real(self, batches, **how)

    monkeypatch.setattr(LeaderRole, "append", append)
    return sizes
