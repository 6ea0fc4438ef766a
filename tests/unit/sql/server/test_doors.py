"""What decides about the doors of Spark without Spark."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from odradek.cli.main import cli
from odradek.model.errors import ConfigError
from odradek.sql.doors.opening import LOOPBACK, DoorTerms
from odradek.sql.server.serving import HttpTerms, listening


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--connect", "0.0.0.0:15002"], "it listens on 127.0.0.1 only"),
        (["--jdbc", "[::]:10000"], "it listens on 127.0.0.1 only"),
        (["--jdbc", "door"], "expected a port"),
        (["--connect", "99999"], "expected a port"),
        (["--connect", "15002", "--users", "users.txt"], "leave out one of them"),
    ],
)
def test_a_door_is_for_this_machine_only(arguments: list[str], problem: str) -> None:
    finished = CliRunner().invoke(cli, ["sql", "serve", *arguments])
    assert finished.exit_code == 2
    assert problem in " ".join(finished.output.split())


def test_a_port_that_is_taken_is_refused_before_java_starts() -> None:
    with listening(HttpTerms(port=0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on {LOOPBACK}:{port}: .*: give another --jdbc"):
            DoorTerms(jdbc=port).check()
