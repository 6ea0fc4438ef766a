"""How many tasks of Spark the engine runs at the same time."""

from __future__ import annotations

import pytest

from odradek.model.errors import ConfigError
from odradek.runtime import real_process
from odradek.sql.queries.engine_sessions import session_settings
from odradek.sql.server.properties import SERVER_SETTINGS, PropertyUse


def test_the_engine_runs_two_tasks_on_each_core_unless_a_number_is_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(real_process, "usable_cpu_count", lambda: 3)
    assert session_settings(0)["spark.master"] == "local[6]"
    assert session_settings(4) == {**session_settings(0), "spark.master": "local[4]"}


def test_the_number_of_tasks_has_bounds() -> None:
    assert SERVER_SETTINGS.given({}, PropertyUse.START).number("odradek.sql.tasks") == 0
    given = SERVER_SETTINGS.given({"odradek.sql.tasks": "4"}, PropertyUse.START)
    assert given.number("odradek.sql.tasks") == 4
    for refused in ("-1", "1001", "many"):
        with pytest.raises(ConfigError, match=r"odradek\.sql\.tasks"):
            SERVER_SETTINGS.given({"odradek.sql.tasks": refused}, PropertyUse.START)
