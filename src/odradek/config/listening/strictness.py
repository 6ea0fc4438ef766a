"""Settings that guard a broker come together from several sources: the strictest one decides, or the start is refused.

A flag outranks a variable, and a variable outranks a file. For most settings the stronger source counts. For
this module's settings a stronger source may tighten a weaker one's value, and never loosen it: a password
protects nothing if a flag about an address takes the login away.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from odradek.config.files.providers import PREFIX as PROVIDER_PREFIX
from odradek.config.files.providers import PROVIDERS, has_variable, resolved
from odradek.model.errors import ConfigError

LISTENERS: Final = "listeners"
PROTOCOL_MAP: Final = "listener.security.protocol.map"
_CONTROLLERS: Final = "controller.listener.names"
_DEFAULT_NAME: Final = "PLAINTEXT"
_TLS_KEYS: Final = ("ssl.", "odradek.ssl.")
_LISTENER_PREFIX: Final = "listener.name."
_GUARDS: Final = {
    "PLAINTEXT": frozenset[str](),
    "SSL": frozenset({"TLS"}),
    "SASL_PLAINTEXT": frozenset({"a login"}),
    "SASL_SSL": frozenset({"TLS", "a login"}),
}
"""The guards that a client has to pass before a listener serves it."""


class _Levels(NamedTuple):
    """How strict each value of a setting is. `other`: the level of values that are not listed."""

    of_value: Mapping[str, int]
    other: int
    default: int


_TRUE_IS_OPEN: Final = _Levels({"true": 0}, other=1, default=1)
_EMPTY_IS_OPEN: Final = _Levels({"": 0}, other=1, default=0)
_OF_LISTENERS: Final = {
    "ssl.client.auth": _Levels({"none": 0, "requested": 1, "required": 2}, other=0, default=0),
    "ssl.endpoint.identification.algorithm": _Levels({"": 0}, other=1, default=1),
    "odradek.ssl.crl.location": _EMPTY_IS_OPEN,
    "odradek.sasl.plain.without.tls.enable": _TRUE_IS_OPEN,
    "odradek.sasl.oauthbearer.unsecured.enable": _TRUE_IS_OPEN,
}
_OF_THE_BROKER: Final = {
    "authorizer.class.name": _EMPTY_IS_OPEN,
    "allow.everyone.if.no.acl.found": _TRUE_IS_OPEN,
    "odradek.secret.files.readable.by.others": _TRUE_IS_OPEN,
}
_ADVICE: Final = "what is stricter counts: change the weaker one, or take the setting out of the stricter one"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Settings as text, by key, and the name of the place that they come from."""

    name: str
    values: Mapping[str, str]


def check_not_weaker(sources: Sequence[SourceSettings], values: Mapping[str, str]) -> None:
    """Raises a ConfigError if `values`, which the sources add up to, guard less than one of the sources
    demands."""
    final = _plain(values, values)
    protocols = _protocols(final, final) or {_DEFAULT_NAME: _mapped(final, final)[_DEFAULT_NAME]}
    problems: list[str] = []
    for source in sources:
        said = _plain(source.values, values)
        problems += _weaker_protocols(source.name, said, final, protocols)
        problems += _weaker_values(source.name, said, final, protocols)
    if problems:
        raise ConfigError(f"{'; '.join(dict.fromkeys(problems))}; {_ADVICE}")


def loosening(static: Mapping[str, str], dynamic: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of `dynamic` that would guard a listener less than the broker's static settings do, and why."""
    reasons = {}
    source = SourceSettings(name="what the broker was started with", values=static)
    for key, text in dynamic.items():
        if _guarding(key):
            try:
                check_not_weaker([source], {**static, key: text})
            except ConfigError as error:
                reasons[key] = str(error)
    return reasons


def _guarding(key: str) -> bool:
    """Returns whether this module knows which values of the key are stricter."""
    name = key.removeprefix(_LISTENER_PREFIX).partition(".")[2] if key.startswith(_LISTENER_PREFIX) else key
    return name in _OF_LISTENERS or key in _OF_THE_BROKER or key in (LISTENERS, PROTOCOL_MAP)


def _plain(values: Mapping[str, str], everything: Mapping[str, str]) -> dict[str, str]:
    """Returns the guarding settings of `values`, looked up where they are stored elsewhere. Listeners' names are in lower
    case."""
    wanted = {
        _with_lower_name(key): text
        for key, text in values.items()
        if _guarding(key) or key in (_CONTROLLERS, PROTOCOL_MAP)
    }
    if not any(has_variable(text) for text in wanted.values()):
        return wanted
    providers = {
        key: text
        for key, text in everything.items()
        if key == PROVIDERS or key.startswith(PROVIDER_PREFIX) or key in _OF_THE_BROKER
    }
    looked_up = resolved({**providers, **wanted})
    return {key: looked_up[key] for key in wanted}


def _with_lower_name(key: str) -> str:
    if not key.startswith(_LISTENER_PREFIX):
        return key
    name, _, rest = key.removeprefix(_LISTENER_PREFIX).partition(".")
    return f"{_LISTENER_PREFIX}{name.lower()}.{rest}"


def _mapped(said: Mapping[str, str], final: Mapping[str, str]) -> dict[str, str]:
    """Returns the protocol of each listener name: as the source maps it, else as the settings do in the end."""
    protocols = {protocol: protocol for protocol in _GUARDS}
    for values in (final, said):
        for entry in values.get(PROTOCOL_MAP, "").split(","):
            name, _, protocol = entry.partition(":")
            if protocol.strip().upper() in _GUARDS:
                protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols


def _protocols(said: Mapping[str, str], final: Mapping[str, str]) -> dict[str, str]:
    """Returns the protocol of each listener that a source names. What is malformed is refused elsewhere."""
    closed = {name.strip().upper() for name in final.get(_CONTROLLERS, "").split(",")}
    mapped = _mapped(said, final)
    names = [entry.partition("://")[0].strip().upper() for entry in said.get(LISTENERS, "").split(",")]
    return {name: mapped[name] for name in names if name in mapped and name not in closed}


def _weaker_protocols(
    source: str, said: Mapping[str, str], final: Mapping[str, str], protocols: Mapping[str, str]
) -> Iterator[str]:
    """Yields the listeners that fall short of a source's protocols."""
    named = _protocols(said, final)
    own_map = _mapped({PROTOCOL_MAP: said.get(PROTOCOL_MAP, "")}, {})
    wanted = {name: _GUARDS[protocol] for name, protocol in {**own_map, **named}.items()}
    for name in _GUARDS.keys() - named.keys():
        if own_map[name] == name:  # its name alone says nothing about another source's listener
            wanted.pop(name, None)
    least = (
        frozenset.intersection(*(_GUARDS[protocol] for protocol in named.values())) if named else frozenset()
    )
    for name, protocol in protocols.items():
        missing = sorted(wanted.get(name, least) - _GUARDS[protocol])
        if missing:
            key = LISTENERS if named else PROTOCOL_MAP
            yield (
                f"listener {name} would be {protocol}, without {' and '.join(missing)}, and {source} has {key}={said[key]}"
            )


def _weaker_values(
    source: str, said: Mapping[str, str], final: Mapping[str, str], protocols: Mapping[str, str]
) -> Iterator[str]:
    """Yields the other settings of a source that are looser in the end."""
    for key, levels in _OF_THE_BROKER.items():
        if key in said and _level(levels, final.get(key)) < _level(levels, said[key]):
            yield f"{key}={final.get(key, '')} is weaker than {key}={said[key]} of {source}"
    named = _protocols(said, final)
    for name, protocol in protocols.items():
        for key, levels in _OF_LISTENERS.items():
            if key.startswith(_TLS_KEYS) and "TLS" not in _GUARDS[protocol]:
                continue
            wanted, counts = _said_of(said, named, key, name), _value_of(final, key, name)
            if wanted is not None and _level(levels, counts) < _level(levels, wanted):
                yield f"{key}={counts or ''} at listener {name} is weaker than {key}={wanted} of {source}"


def _said_of(said: Mapping[str, str], named: Mapping[str, str], key: str, name: str) -> str | None:
    """Returns the value that a source has for a listener. For one that it does not name, the weakest of those that it names."""
    if not named or name in named or f"{_LISTENER_PREFIX}{name.lower()}.{key}" in said:
        return _value_of(said, key, name)
    values = [_value_of(said, key, other) for other in named]
    levels = _OF_LISTENERS[key]
    return (
        min((text for text in values if text is not None), key=partial(_level, levels))
        if all(text is not None for text in values)
        else None
    )


def _value_of(values: Mapping[str, str], key: str, name: str) -> str | None:
    return values.get(f"{_LISTENER_PREFIX}{name.lower()}.{key}", values.get(key))


def _level(levels: _Levels, text: str | None) -> int:
    return levels.default if text is None else levels.of_value.get(text.strip().lower(), levels.other)
