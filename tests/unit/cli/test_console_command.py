"""`odradek console`: what the options about a SQL server mean, and which are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from odradek.cli.console.console import console
from odradek.console.sql.access import SqlTerms
from odradek.console.web.console import ConsoleOptions
from odradek.model.errors import ConfigError
from odradek.net.listener_pages import ListenerPageError

ELSEWHERE = ["--listen", "127.0.0.1:0", "--bootstrap", "127.0.0.1:9"]


def refusal(*arguments: str) -> str:
    outcome = CliRunner().invoke(console, [*ELSEWHERE, *arguments])
    assert isinstance(outcome.exception, ConfigError), outcome.output
    return str(outcome.exception)


@pytest.mark.parametrize("url", ["nonsense", "ftp://host", "http://", "http://host:port", "http://host:0"])
def test_what_is_no_address_of_a_sql_server_is_refused(url: str) -> None:
    assert "http://HOST:PORT" in refusal("--sql", url)


def test_a_login_without_a_server_is_refused(tmp_path: Path) -> None:
    assert "--sql URL" in refusal("--sql-user", "ann")
    authority = tmp_path / "ca.pem"
    authority.touch()
    assert "--sql URL" in refusal("--sql-ca", str(authority))


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[ConsoleOptions]:
    """The options with which consoles were started; none of them serves."""
    started: list[ConsoleOptions] = []

    async def serve(options: ConsoleOptions, *_: object, **__: object) -> None:
        started.append(options)

    monkeypatch.setattr("odradek.console.serving.serve_console", serve)
    return started


def test_the_password_comes_from_the_environment_and_is_in_no_repr(
    served: list[ConsoleOptions], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODRADEK_SQL_PASSWORD", "hush")
    outcome = CliRunner().invoke(console, [*ELSEWHERE, "--sql", "http://127.0.0.1:8088", "--sql-user", "ann"])
    assert outcome.exit_code == 0, outcome.output
    assert served[0].sql == SqlTerms(url="http://127.0.0.1:8088", user="ann", password="hush", is_shared=True)
    assert "hush" not in repr(served[0])


def test_users_who_log_in_to_the_console_log_in_to_the_sql_server(
    served: list[ConsoleOptions], tmp_path: Path
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-256\n")
    sql = ["--sql", "http://127.0.0.1:8088", "--command-config", str(properties)]
    CliRunner().invoke(console, [*ELSEWHERE, *sql], catch_exceptions=False)
    CliRunner().invoke(
        console, [*ELSEWHERE, *sql, "--sql-user", "all"], input="hush\n", catch_exceptions=False
    )
    assert [options.sql.is_shared for options in served if options.sql is not None] == [False, True]


def test_metrics_listeners_are_named_once_for_each_broker(
    served: list[ConsoleOptions], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = tmp_path / "token"
    token.write_text("token-of-the-listener\n")
    named = ["--metrics", "b1:9464", "--metrics", "[::1]:9465", "--metrics", "b1:9464"]
    CliRunner().invoke(
        console, [*ELSEWHERE, *named, "--metrics-token-file", str(token)], catch_exceptions=False
    )
    CliRunner().invoke(console, ELSEWHERE, catch_exceptions=False)
    monkeypatch.setenv("ODRADEK_METRICS", "b1:9464 b2:9464")
    CliRunner().invoke(console, ELSEWHERE, catch_exceptions=False)
    terms, absent, of_environment = [options.listeners for options in served]
    assert absent is None
    assert terms is not None
    assert [str(address) for address in terms.addresses] == ["b1:9464", "[::1]:9465"]
    assert terms.access.token_file == str(token)
    assert of_environment is not None
    assert [str(address) for address in of_environment.addresses] == ["b1:9464", "b2:9464"]


def test_what_is_no_metrics_listener_is_refused_at_the_start(tmp_path: Path) -> None:
    outcome = CliRunner().invoke(console, [*ELSEWHERE, "--metrics", "nonsense"])
    assert (outcome.exit_code, "--metrics 'nonsense'" in outcome.output) == (2, True)
    for option in ("--metrics-token-file", "--metrics-ca"):
        words = ["--metrics", "b1:9464", option, str(tmp_path / "absent")]
        outcome = CliRunner().invoke(console, [*ELSEWHERE, *words])
        assert isinstance(outcome.exception, ListenerPageError), outcome.output
    many = [word for number in range(101) for word in ("--metrics", f"b{number}:9464")]
    assert "100 times" in refusal(*many)
