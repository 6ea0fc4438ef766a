"""Makes a `BrokerConfig` of text: everything that people write is checked here, before anything is opened."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from odradek.config.broker import (
    BROKER_PATHS,
    BROKER_SETTINGS,
    TWIN_UNIT_MS,
    TWINS,
    UNSUPPORTED,
    BrokerConfig,
    value_of,
)
from odradek.config.data_directory import absolute_directory, default_data_directory
from odradek.config.definition import DynamicUpdate
from odradek.config.files.providers import PREFIX, refuse_variables, resolved
from odradek.config.listener_security import dynamic_of_listener, is_of_listener, listener_security
from odradek.config.listening.listeners import (
    Listener,
    check_advertised,
    parse_listeners,
    parse_protocol_map,
)
from odradek.config.listening.strictness import loosening
from odradek.config.section import Path, with_values
from odradek.config.topic import TOPIC_SETTINGS, LogConfig
from odradek.config.unsupported import FOREIGN_PREFIXES
from odradek.config.zookeeper import check_zookeeper
from odradek.model.errors import ConfigError
from odradek.model.java_numbers import is_digits, trimmed
from odradek.model.near_names import KEYS_ALIKE, near_hint

Values = dict[str, Any]


def load_broker_config(values: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    """Returns the configuration in `values` (Kafka's keys, as text), and a warning for each key that has no effect.

    ConfigError names every value that cannot be used, and what is allowed.
    """
    return _load(resolved(values))


def _load(values: Mapping[str, str]) -> tuple[BrokerConfig, list[str]]:
    originals = {key.strip(): text for key, text in values.items()}
    parsed, warnings, problems = _parse(originals)
    own: Values = {key: parsed[key] for key in BROKER_PATHS.keys() & parsed.keys()}
    for derive in (
        _node_id,
        _addresses,
        _log_dirs,
        _registry_dir,
        _connection_overrides,
        _consumer_groups,
        _request_bytes,
        check_zookeeper,
    ):
        try:
            own.update(derive(parsed))
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError("; ".join(problems))
    warnings.extend(_unopened(parsed))
    values_at: dict[Path, object] = {BROKER_PATHS[key]: value for key, value in own.items()}
    config = with_values(BrokerConfig(log=_topic_defaults(parsed), originals=originals), values_at)
    security, more = listener_security(
        originals, config.network.listeners, config.network.advertised_listeners
    )
    return replace(config, security=security), warnings + more


def reconfigured(
    config: BrokerConfig, defaults: Mapping[str, str], own: Mapping[str, str] = MappingProxyType({})
) -> BrokerConfig:
    """Returns a configuration with dynamic settings on top of what it was loaded from: first all brokers'
    (`defaults`), then this broker's own. Raises ConfigError as `load_broker_config` does.

    Of the settings that are known, only those that a running broker may take are accepted."""
    for key in {**defaults, **own}:
        setting = BROKER_SETTINGS.get(key)
        if is_of_listener(key) and dynamic_of_listener(key) is DynamicUpdate.READ_ONLY:
            raise ConfigError(f"{key} cannot change while the broker runs")
        if is_of_listener(key) and key in defaults:
            raise ConfigError(f"{key} can change on one broker only: name its id")
        if setting is None:  # kept without effect, as Kafka keeps it for its plugins
            continue
        if setting.dynamic is DynamicUpdate.READ_ONLY:
            raise ConfigError(f"{key} cannot change while the broker runs")
        if setting.dynamic is DynamicUpdate.PER_BROKER and key in defaults:
            raise ConfigError(f"{key} can change on one broker only: name its id")
    refuse_variables({**defaults, **own}, config.server.config_providers)
    loose = loosening(
        config.originals, {**defaults, **own}
    )  # a setting of an earlier start may be among them
    effective = {key: text for key, text in {**defaults, **own}.items() if key not in loose}
    loaded, _ = _load({**config.originals, **effective})
    changed = config.dynamic.keys() | config.dynamic_defaults.keys() | defaults.keys() | own.keys()
    new = {
        BROKER_PATHS[key]: value_of(loaded, key)
        for key in changed & BROKER_PATHS.keys()
        if not BROKER_SETTINGS[key].as_started
    }
    new |= {("log", TWINS[key]): getattr(loaded.log, TWINS[key]) for key in changed & TWINS.keys()}
    return replace(
        with_values(config, new),
        security=loaded.security,
        dynamic={key: text for key, text in own.items() if key not in loose},
        dynamic_defaults={key: text for key, text in defaults.items() if key not in loose},
    )


def without_effect(key: str) -> str | None:
    """Returns the reason why a dynamic setting has no effect on a running broker; None if it has one."""
    if is_of_listener(key):
        return None
    setting = BROKER_SETTINGS.get(key)
    if setting is None:
        return unknown_setting(key)
    if setting.as_started:
        return f"setting {key} counts when a broker starts, and only in its file: until then the broker keeps its value"
    return None if setting.effective else _without_effect(key)


def unknown_setting(key: str) -> str:
    """Returns the warning about a key that Kafka does not have either, with the name that may have been meant."""
    topic = TOPIC_SETTINGS.get(key)
    if topic is not None and topic.synonyms:
        return f"{key} is a topic setting and has no effect here; use {topic.synonyms[0]}"
    if topic is not None:
        return f"{key} is a topic setting and has no effect here; set it on a topic"
    hint = near_hint(key, BROKER_SETTINGS, likeness=KEYS_ALIKE)
    return f"unknown setting {key} has no effect{hint}"


def _parse(values: Mapping[str, str]) -> tuple[Values, list[str], list[str]]:
    """Returns parsed values of the settings that have an effect, warnings, and problems."""
    parsed: Values = {}
    warnings: list[str] = []
    problems: list[str] = []
    for key, text in values.items():
        if is_of_listener(key) or key.startswith(PREFIX):
            continue
        setting = BROKER_SETTINGS.get(key)
        if setting is None or not setting.effective:
            warnings.append(_without_effect(key))
            continue
        try:
            parsed[key] = setting.parse(text)
        except ConfigError as error:
            problems.append(str(error))
    return parsed, warnings, problems


def _without_effect(key: str) -> str:
    reason = UNSUPPORTED.get(key)
    if reason is None and key in BROKER_SETTINGS:
        reason = "is not supported yet and has no effect"
    if reason is None:
        reason = next((reason for prefix, reason in FOREIGN_PREFIXES.items() if key.startswith(prefix)), None)
    return f"setting {key} {reason}" if reason else unknown_setting(key)


def _node_id(parsed: Values) -> Values:
    """Returns node.id, or its older name broker.id, where -1 means 'not set'."""
    older = parsed.get("broker.id", -1)
    if older < 0:
        return {}
    if parsed.get("node.id", older) != older:
        raise ConfigError(f"broker.id={older} is not allowed: node.id={parsed['node.id']} says otherwise")
    return {"node.id": older}


def _consumer_groups(parsed: Values) -> Values:
    """Checks that groups' values are between the least and the most that a group may set."""
    value = {
        name: parsed.get(f"group.consumer.{name}", BROKER_SETTINGS[f"group.consumer.{name}"].default)
        for bound in ("", "min.", "max.")
        for name in (
            f"{bound}heartbeat.interval.ms",
            f"{bound}session.timeout.ms",
            f"{bound}assignment.interval.ms",
        )
    }
    for name in ("heartbeat.interval.ms", "session.timeout.ms", "assignment.interval.ms"):
        least, most = value[f"min.{name}"], value[f"max.{name}"]
        if not least <= value[name] <= most:
            raise ConfigError(
                f"group.consumer.{name}={value[name]} is not allowed: group.consumer.min.{name} and .max.{name} "
                f"bound it to {least} to {most}"
            )
    if value["heartbeat.interval.ms"] >= value["session.timeout.ms"]:
        raise ConfigError(
            f"group.consumer.heartbeat.interval.ms={value['heartbeat.interval.ms']} is not allowed: it must be shorter "
            f"than group.consumer.session.timeout.ms={value['session.timeout.ms']}"
        )
    return {}


def _request_bytes(parsed: Values) -> Values:
    """Checks that `queued.max.request.bytes` has room for the largest request; where it is not set, it has room for two."""
    largest = parsed.get("socket.request.max.bytes", BROKER_SETTINGS["socket.request.max.bytes"].default)
    default = BROKER_SETTINGS["queued.max.request.bytes"].default
    limit = parsed.get("queued.max.request.bytes")
    if limit is None:
        return {"queued.max.request.bytes": max(default, 2 * largest)}
    if 0 < limit < largest:
        raise ConfigError(
            f"queued.max.request.bytes={limit} is not allowed: it must be at least socket.request.max.bytes={largest}, "
            "or 0 for no limit"
        )
    return {}


def _addresses(parsed: Values) -> Values:
    """Listeners and what they advertise. Those for a KRaft controller are left out of both."""
    protocols = parse_protocol_map(
        "listener.security.protocol.map", parsed.get("listener.security.protocol.map", ())
    )
    for name in parsed.get("controller.listener.names", ()):
        protocols.setdefault(name.upper(), "PLAINTEXT")  # it is not opened, so anything will do
    values: Values = {"listener.security.protocol.map": protocols}
    listeners: tuple[Listener, ...] = (Listener(protocol=protocols[Listener().name]),)
    if "listeners" in parsed:
        listeners = _for_clients(parse_listeners("listeners", parsed["listeners"], protocols), parsed)
        if not listeners:
            raise ConfigError(
                "listeners= is not allowed: a broker needs a listener, such as PLAINTEXT://127.0.0.1:9092"
            )
    values["listeners"] = listeners
    if "advertised.listeners" in parsed:
        advertised_listeners = parse_listeners(
            "advertised.listeners", parsed["advertised.listeners"], protocols
        )
        advertised = _for_clients(advertised_listeners, parsed)
        check_advertised("advertised.listeners", advertised, listeners)
        values["advertised.listeners"] = advertised
    if (protocol := parsed.get("security.inter.broker.protocol")) is not None:
        values["inter.broker.listener.name"] = _listener_of(protocol, parsed, listeners)
    if name := parsed.get("inter.broker.listener.name"):
        values["inter.broker.listener.name"] = _among("inter.broker.listener.name", name, listeners)
    if name := parsed.get("control.plane.listener.name"):
        of_brokers = values.get("inter.broker.listener.name") or listeners[0].name
        values["control.plane.listener.name"] = _control_plane(name, listeners, of_brokers)
    return values


def _among(key: str, name: str, listeners: tuple[Listener, ...]) -> str:
    """Returns the name as listeners have it."""
    if name.upper() not in (listener.name for listener in listeners):
        raise ConfigError(
            f"{key}={name} is not allowed: no listener has this name ({', '.join(listener.name for listener in listeners)})"
        )
    return name.upper()


def _control_plane(name: str, listeners: tuple[Listener, ...], of_brokers: str) -> str:
    key = "control.plane.listener.name"
    chosen = _among(key, name, listeners)
    if chosen == of_brokers:
        raise ConfigError(
            f"{key}={name} is not allowed: other brokers use this listener (inter.broker.listener.name, or the first of "
            "listeners); the control plane needs one of its own"
        )
    return chosen


def _listener_of(protocol: str, parsed: Values, listeners: tuple[Listener, ...]) -> str:
    """Returns the listener that brokers use: the one that is named like their protocol, as in Kafka."""
    if parsed.get("inter.broker.listener.name"):
        raise ConfigError(
            f"security.inter.broker.protocol={protocol} is not allowed together with inter.broker.listener.name: "
            "set one of them"
        )
    if protocol not in (listener.name for listener in listeners):
        raise ConfigError(
            f"security.inter.broker.protocol={protocol} is not allowed: no listener has this name "
            f"({', '.join(listener.name for listener in listeners)}); or set inter.broker.listener.name"
        )
    return protocol


def _for_clients(listeners: tuple[Listener, ...], parsed: Values) -> tuple[Listener, ...]:
    controller = {name.upper() for name in parsed.get("controller.listener.names", ())}
    return tuple(listener for listener in listeners if listener.name not in controller)


def _unopened(parsed: Values) -> list[str]:
    names = parsed.get("controller.listener.names", ())
    return [f"listener {name} is not opened: there is no KRaft controller" for name in names]


def _log_dirs(parsed: Values) -> Values:
    """Returns log.dirs, else log.dir, else the default; absolute, in order."""
    key = "log.dirs" if parsed.get("log.dirs") else "log.dir"
    given = parsed.get(key) or (default_data_directory(),)
    directories = tuple(absolute_directory(path) for path in given if path)
    if len(set(directories)) < len(directories) or not directories:
        raise ConfigError(f"{key}={','.join(given)!r} is not allowed: expected directories, each named once")
    return {"log.dirs": directories}


def _registry_dir(parsed: Values) -> Values:
    directory = parsed.get("odradek.registry.dir")
    return {"odradek.registry.dir": absolute_directory(directory)} if directory else {}


def _connection_overrides(parsed: Values) -> Values:
    """Parses `max.connections.per.ip.overrides` into a mapping from address to count."""
    key = "max.connections.per.ip.overrides"
    overrides: dict[str, int] = {}
    for entry in filter(None, (trimmed(entry) for entry in parsed.get(key, "").split(","))):
        address, _, count = entry.rpartition(":")
        if not address or not is_digits(count):
            raise ConfigError(f"{key}={entry!r:.80} is not allowed: expected ADDRESS:COUNT")
        overrides[address.strip("[]")] = int(count)
    return {key: overrides}


def _topic_defaults(parsed: Values) -> LogConfig:
    """Returns the settings of topics that set nothing: from the strongest broker key that is set for each."""
    defaults: Values = {}
    for topic in TOPIC_SETTINGS.values():
        key = next((key for key in topic.synonyms if key in parsed), None)
        if key is not None:
            unit_ms = next((ms for ending, ms in TWIN_UNIT_MS.items() if key.endswith(ending)), None)
            value = parsed[key]
            defaults[TWINS[key]] = value if unit_ms is None or value < 0 else value * unit_ms
    return LogConfig(**defaults)
