"""`odradek config`: what settings are, where they come from, and how to change them on a running cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from odradek.cli.cluster.settings import ALL_BROKERS, change_resource, show_resource
from odradek.cli.options import bootstrap_option, broker_settings_options, complete_topics, json_option, pairs
from odradek.cli.output import say, say_lines
from odradek.cli.serving.broker_settings import gather
from odradek.config.broker import BROKER_SETTINGS, UNSUPPORTED
from odradek.config.definition import Setting
from odradek.config.describe import broker_default
from odradek.config.loading import load_broker_config
from odradek.config.sources import DEFAULT, CollectedConfig
from odradek.config.topic import TOPIC_SETTINGS
from odradek.config.unsupported import is_secret
from odradek.model.aliases import Json
from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy
from odradek.model.near_names import KEYS_ALIKE, near_hint

if TYPE_CHECKING:
    from odradek.cli import output
else:
    output = lazy("odradek.cli.output")

Command = TypeVar("Command", bound=Callable[..., object])

_HIDDEN = "(hidden)"


def _resource_options(command: Command) -> Command:
    topic = click.option(
        "--topic", metavar="NAME", shell_complete=complete_topics, help="Settings of this topic."
    )
    broker = click.option("--broker", metavar="ID", help=f"Settings of this broker, or of '{ALL_BROKERS}'.")
    group = click.option("--group", metavar="NAME", help="Settings of this group.")
    loggers = click.option("--loggers", metavar="ID", help="Levels of this broker's loggers.")
    metrics = click.option("--client-metrics", metavar="NAME", help="A subscription to clients' metrics.")
    return topic(broker(group(loggers(metrics(command)))))


@click.group()
def config() -> None:
    """Show, explain and change settings."""


@config.command()
@broker_settings_options
@_resource_options
@click.option("--all", "everything", is_flag=True, help="Show settings at their defaults, too.")
@bootstrap_option
@json_option
def show(
    file: str | None,
    settings: tuple[str, ...],
    listen: str | None,
    data: str | None,
    everything: bool,
    bootstrap: str,
    as_json: bool,
    **resource: str | None,
) -> None:
    """Show settings and where each value comes from.

    With --topic, --broker, --group, --loggers or --client-metrics: the settings of a running cluster.
    Without: the settings that `serve` would use, given the same arguments and the same environment.
    """
    if any(name is not None for name in resource.values()):
        show_resource(bootstrap, resource, everything=everything, as_json=as_json)
        return
    collected = gather(file, settings, listen, data)
    _, warnings = load_broker_config(collected.values)
    _show_local(collected, [*collected.warnings, *warnings], everything=everything, as_json=as_json)


def _show_local(collected: CollectedConfig, warnings: list[str], *, everything: bool, as_json: bool) -> None:
    rows: list[tuple[str, str | None, str]] = [
        (key, _HIDDEN if is_secret(key) else value, collected.origins[key])
        for key, value in collected.values.items()
    ]
    if everything:
        rows += [
            (key, broker_default(key), DEFAULT)
            for key, setting in BROKER_SETTINGS.items()
            if setting.effective and not setting.internal and key not in collected.values
        ]
    rows.sort()
    if as_json:
        output.print_json([{"key": key, "value": value, "from": origin} for key, value, origin in rows])
    elif rows:
        output.print_table(["setting", "value", "from"], rows)
    else:
        say("No setting is given: everything is at its default (--all shows them).")
    for warning in warnings:
        output.warn(warning)


@config.command("set")
@click.argument("settings", metavar="KEY=VALUE...", nargs=-1, required=True)
@_resource_options
@bootstrap_option
def set_(settings: tuple[str, ...], bootstrap: str, **resource: str | None) -> None:
    """Change settings of a topic, of brokers, of a group, while they run."""
    change_resource(bootstrap, resource, wanted=pairs(settings, "setting"))


@config.command()
@click.argument("keys", metavar="KEY...", nargs=-1, required=True)
@_resource_options
@bootstrap_option
def unset(keys: tuple[str, ...], bootstrap: str, **resource: str | None) -> None:
    """Take settings of a topic, of brokers, of a group back to their defaults."""
    change_resource(bootstrap, resource, wanted=dict.fromkeys(keys))


@config.command()
@click.argument("keys", metavar="[KEY]...", nargs=-1)
@json_option
def describe(keys: tuple[str, ...], as_json: bool) -> None:
    """Explain settings: type, default, what is allowed, what it means. Needs no broker.

    KEY may be a part of a name: `odradek config describe retention`.
    """
    settings = [
        setting
        for table in (TOPIC_SETTINGS, BROKER_SETTINGS)
        for setting in table.values()
        if not setting.internal and _is_selected(setting, keys)
    ]
    for key in keys:
        if not any(key in setting.key for setting in settings):
            raise ConfigError(_no_such(key))
    if as_json:
        output.print_json([_explained(setting) for setting in settings])
    elif len(settings) > 3 or not keys:
        output.print_table(
            ["setting", "of a", "type", "default", "meaning"],
            [
                (
                    setting.key,
                    setting.scope.value,
                    setting.type.name.lower(),
                    _default(setting),
                    _meaning(setting),
                )
                for setting in settings
            ],
        )
    else:
        say_lines("\n\n".join(_paragraph(setting) for setting in settings))


def _is_selected(setting: Setting, keys: tuple[str, ...]) -> bool:
    """An exact name asks for that setting alone."""
    if not keys:
        return setting.effective
    known = TOPIC_SETTINGS.keys() | BROKER_SETTINGS.keys()
    return any(setting.key == key if key in known else key in setting.key for key in keys)


def _no_such(key: str) -> str:
    hint = near_hint(key, [*TOPIC_SETTINGS, *BROKER_SETTINGS], likeness=KEYS_ALIKE)
    return f"there is no setting {key}{hint}"


def _default(setting: Setting) -> str | None:
    return broker_default(setting.key) if setting.key in BROKER_SETTINGS else setting.default_text


def _meaning(setting: Setting) -> str:
    if setting.effective:
        return setting.meaning
    reason = UNSUPPORTED.get(setting.key, "is not supported yet and has no effect")
    return f"This setting {reason}. ({setting.meaning.removesuffix('.')})"


def _explained(setting: Setting) -> dict[str, Json]:
    return {
        "key": setting.key,
        "scope": setting.scope.value,
        "type": setting.type.name.lower(),
        "default": _default(setting),
        "allowed": setting.allowed,
        "update": setting.dynamic.value,
        "synonyms": list(setting.synonyms),
        "effective": setting.effective,
        "meaning": _meaning(setting),
    }


def _paragraph(setting: Setting) -> str:
    lines = [f"{setting.key}  ({setting.scope.value} setting)", f"  {_meaning(setting)}"]
    if setting.effective:
        default = _default(setting)
        lines.append(
            f"  type: {setting.type.name.lower()}   default: {'none' if default is None else default or 'empty'}"
        )
        lines.append(f"  allowed: {setting.allowed}")
    if setting.synonyms:
        lines.append(f"  where it is not set: {', then '.join(setting.synonyms)}")
    return "\n".join(lines)
