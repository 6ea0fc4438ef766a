"""The clients of the command line, with timeouts that suit a waiting person."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from odradek import client
from odradek.model.aliases import ClientSettings
from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.client.network import wrong_peer
    from odradek.client.settings import address as network_address
    from odradek.client.settings import settings as client_settings
    from odradek.client.settings import settings_file
else:
    client_settings = lazy("odradek.client.settings.settings")
    settings_file = lazy("odradek.client.settings.settings_file")
    network_address = lazy("odradek.client.settings.address")
    wrong_peer = lazy("odradek.client.network.wrong_peer")

COMMAND_CONFIG: Final = "odradek.command_config"
"""The key of the path of `--command-config` in a command's context."""
PATIENCE_MS: Final = 10_000
CONNECT_S: Final = 3.0
CLIENT_ID: Final = "odradek-cli"


class NoBrokerError(OdradekError):
    """Nothing listens at the broker's address."""


@contextmanager
def open_admin(bootstrap: str, *, patience_ms: int = PATIENCE_MS) -> Iterator[client.Admin]:
    """Yields an admin client that gives up after `patience_ms`; NoBrokerError at once where nothing listens."""
    check_reachable(bootstrap)
    settings = {"bootstrap.servers": bootstrap, "client.id": CLIENT_ID, **connection_settings()}
    with client.Admin.from_config({**settings, "default.api.timeout.ms": str(patience_ms)}) as admin:
        yield admin


def connection_settings() -> dict[str, str]:
    """Returns the connection settings in the file of `--command-config`, by Kafka's names; its other settings are left out."""
    path = command_config()
    return {} if path is None else settings_file.connection_settings(path, "--command-config")


def client_arguments(client_id: str = CLIENT_ID) -> ClientSettings:
    """Arguments of any client that a command makes, by their names in Python: its id, and how it connects and logs in."""
    settings = {"bootstrap.servers": "", "client.id": client_id, **connection_settings()}
    arguments = client_settings.AdminSettings.arguments(settings)
    del arguments["bootstrap_servers"]
    return arguments


def command_config() -> str | None:
    """Returns the file of `--command-config`; None where there is none."""
    context = click.get_current_context(silent=True)
    return (None if context is None else context.meta.get(COMMAND_CONFIG)) or None


def check_reachable(bootstrap: str) -> None:
    """Raise NoBrokerError unless one of the addresses can be connected to.

    Clients go on trying for a while, since brokers restart; a user who mistyped a port should not wait for that.
    """

    problems = []
    for address in network_address.parse_bootstrap(bootstrap):
        try:
            socket.create_connection(address, timeout=CONNECT_S).close()
        except OSError as error:
            problems.append(wrong_peer.connect_problem(address, error))
        else:
            return
    raise NoBrokerError(
        f"{'; '.join(problems)}: start a broker with `odradek serve`, or name another with --bootstrap"
    )
