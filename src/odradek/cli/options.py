"""Options that several commands share, and words that people write in them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeVar

import click

from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from odradek.cli import access
    from odradek.client import Admin
    from odradek.client.settings import settings_file
else:
    access = lazy("odradek.cli.access")
    settings_file = lazy("odradek.client.settings.settings_file")

Command = TypeVar("Command", bound=Callable[..., object])

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"


def _keep_command_config(context: click.Context, _: click.Parameter, path: str | None) -> None:
    context.meta[access.COMMAND_CONFIG] = path


command_config_option: Final = click.option(
    "--command-config",
    metavar="FILE",
    envvar="ODRADEK_CLIENT_CONFIG",
    expose_value=False,
    is_eager=True,  # before --bootstrap
    callback=_keep_command_config,
    help="A properties file that says how to connect: security.protocol, sasl.mechanism, ...",
)


def _bootstrap(context: click.Context, parameter: click.Parameter, given: str) -> str:
    """Returns the address: without the option, the one in the file of `--command-config`."""
    is_default = context.get_parameter_source(parameter.name or "") is click.core.ParameterSource.DEFAULT
    path = context.meta.get(access.COMMAND_CONFIG)
    if not is_default or not path:
        return given
    return settings_file.bootstrap_servers(path) or given


def bootstrap_option(command: Command) -> Command:
    """Adds the options for the cluster's address and for the login."""
    for decorate in (
        command_config_option,
        click.option(
            "--bootstrap",
            "-b",
            metavar="HOST:PORT",
            envvar="ODRADEK_BOOTSTRAP",
            default=DEFAULT_BOOTSTRAP,
            callback=_bootstrap,
            show_default=True,
            help="A broker of the cluster (several: separated by commas).",
        ),
    ):
        command = decorate(command)
    return command


json_option: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")


def broker_settings_options(command: Command) -> Command:
    """Adds the options of `serve` to a command that looks at what `serve` would do."""
    for decorate in (
        click.argument("file", required=False, metavar="[server.properties]", type=click.Path()),
        click.option(
            "settings", "--set", metavar="KEY=VALUE", multiple=True, help="A setting; may be repeated."
        ),
        click.option(
            "--listen", metavar="HOST:PORT", help="Where to listen; short for the setting `listeners`."
        ),
        click.option("--data", metavar="DIR", help="The data directory; short for the setting `log.dirs`."),
    ):
        command = decorate(command)
    return command


def complete_topics(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of topics for the shell; none when no broker answers at once."""
    return _completions(context, incomplete, lambda admin: admin.list_topics())


def complete_groups(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Returns the names of groups for the shell; none when no broker answers at once."""
    return _completions(context, incomplete, lambda admin: [group.group_id for group in admin.list_groups()])


def complete_transactions(context: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
    """Transactional ids for the shell; none when no broker answers at once."""
    return _completions(
        context,
        incomplete,
        lambda admin: [transaction.transactional_id for transaction in admin.list_transactions()],
    )


def _completions(context: click.Context, incomplete: str, names: Callable[[Admin], list[str]]) -> list[str]:
    try:
        with access.open_admin(
            context.params.get("bootstrap") or DEFAULT_BOOTSTRAP, patience_ms=1_000
        ) as admin:
            return [name for name in names(admin) if name.startswith(incomplete)]
    except Exception:  # noqa: BLE001 - a completion that fails must not disturb the prompt
        return []


topic_argument: Final = click.argument("topic", shell_complete=complete_topics)


_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|[tnr0\\])")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "0": "\0", "\\": "\\"}


def unescaped(text: str) -> bytes:
    """Replaces `\\t \\n \\r \\0 \\xHH` by their bytes, since shells make them hard to type; the rest stays."""
    parts = []
    position = 0
    for match in _ESCAPE.finditer(text):
        name = match[1]
        parts.append(text[position : match.start()].encode())
        parts.append(_CONTROL[name].encode() if name in _CONTROL else bytes([int(name[1:], 16)]))
        position = match.end()
    parts.append(text[position:].encode())
    return b"".join(parts)


def pairs(items: Iterable[str], option: str) -> dict[str, str]:
    """Parses `KEY=VALUE` items into a mapping; a UsageError names the option whose item has no `=`."""
    parsed = {}
    for pair in items:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise click.UsageError(
                f"{option} {pair!r}: expected KEY=VALUE", click.get_current_context(silent=True)
            )
        parsed[key] = value
    return parsed
