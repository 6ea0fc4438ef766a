"""Other addresses for the listeners of some settings: what `--listen` and `--brokers N` change, and nothing else.

A listener keeps its name, and with the name its protocol, its mechanisms and the settings `listener.name.NAME.…`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from odradek.config.files.providers import PREFIX, PROVIDERS, resolved
from odradek.config.listening.listeners import (
    Listener,
    format_address,
    parse_host_port,
    parse_listeners,
    parse_protocol_map,
    want_one_port,
)
from odradek.model.errors import ConfigError
from odradek.model.ports import PORT_MAX

LISTENERS: Final = "listeners"
ADVERTISED: Final = "advertised.listeners"
METRICS: Final = "metrics.listeners"
_PROTOCOL_MAP: Final = "listener.security.protocol.map"
_CONTROLLERS: Final = "controller.listener.names"


def at_address(values: Mapping[str, str], address: str, *, asked_by: str = "--listen") -> str:
    """Returns the value of `listeners` with another address. ConfigError where more than one listener is opened."""
    host, port = parse_host_port(address)
    listeners = _listeners(values)
    opened = [listener for listener in listeners if not _is_closed(values, listener)]
    if len(opened) > 1:
        names = ", ".join(map(str, opened))
        raise ConfigError(
            f"{asked_by} {address} is not allowed together with listeners={_text(listeners)}: it names one address, and "
            f"there are {len(opened)} listeners ({names}); set listeners, with an address for each"
        )
    return _text(
        replace(listener, host=host, port=port) if listener in opened else listener for listener in listeners
    )


def for_brokers(values: Mapping[str, str], count: int) -> list[dict[str, str]]:
    """Returns `listeners`, `advertised.listeners` and `metrics.listeners` of each of some brokers of one machine.

    Their ports follow one another; port 0 stays: the system chooses then. Raises ConfigError where two of the brokers would
    want one port."""
    own: list[dict[str, str]] = []
    taken: list[tuple[int, Listener]] = []
    for number in range(count):
        settings = {}
        for key in (LISTENERS, ADVERTISED):
            listeners = _listeners(values) if key == LISTENERS else _parsed(values, key)
            moved = [
                listener if _is_closed(values, listener) else _shifted(listener, number)
                for listener in listeners
            ]
            if moved:
                settings[key] = _text(moved)
            if key == LISTENERS:
                taken += [(number, listener) for listener in moved if not _is_closed(values, listener)]
        if metrics := [_metrics_listener(text) for text in _split(values.get(METRICS, ""))]:
            moved = [_shifted(listener, number) for listener in metrics]
            settings[METRICS] = ",".join(map(_address, moved))
            taken += [(number, listener) for listener in moved]
        own.append(settings)
    for broker, listener, other_broker, other in _clashes(taken):
        raise ConfigError(
            f"--brokers {count} is not allowed with these listeners: {other} of broker {other_broker + 1} and {listener} of "
            f"broker {broker + 1} want one port; leave {count} ports from each port in `listeners` to the next"
        )
    return own


def first_address(values: Mapping[str, str]) -> str:
    """Returns HOST:PORT of the first listener that is opened."""
    return _address(next(listener for listener in _listeners(values) if not _is_closed(values, listener)))


def with_first_address(values: Mapping[str, str], address: str) -> str:
    """Returns the value of `listeners` with another address for the first listener that is opened."""
    host, port = parse_host_port(address)
    listeners = _listeners(values)
    first = next(listener for listener in listeners if not _is_closed(values, listener))
    return _text(
        replace(listener, host=host, port=port) if listener is first else listener for listener in listeners
    )


def _listeners(values: Mapping[str, str]) -> list[Listener]:
    return _parsed(values, LISTENERS) or [Listener()]


def _metrics_listener(text: str) -> Listener:
    host, port = parse_host_port(text)
    return Listener(name="metrics", host=host or "127.0.0.1", port=port)


def _address(listener: Listener) -> str:
    return format_address(listener.host, listener.port)


def _parsed(values: Mapping[str, str], key: str) -> list[Listener]:
    """Returns the listeners that a key names; none where it is not set. ConfigError."""
    known = {name: values[name] for name in (key, _PROTOCOL_MAP, _CONTROLLERS) if name in values}
    if PROVIDERS in values:
        providers = {
            name: text for name, text in values.items() if name == PROVIDERS or name.startswith(PREFIX)
        }
        known = resolved({**providers, **known})
    protocols = parse_protocol_map(_PROTOCOL_MAP, _split(known.get(_PROTOCOL_MAP, "")))
    for name in _split(known.get(_CONTROLLERS, "")):
        protocols.setdefault(name.upper(), "PLAINTEXT")
    return list(parse_listeners(key, _split(known.get(key, "")), protocols))


def _is_closed(values: Mapping[str, str], listener: Listener) -> bool:
    """Returns whether the listener is meant for a KRaft controller: no broker opens it."""
    return listener.name in (name.upper() for name in _split(values.get(_CONTROLLERS, "")))


def _shifted(listener: Listener, number: int) -> Listener:
    port = listener.port + number if listener.port else 0
    if port > PORT_MAX:
        raise ConfigError(
            f"broker {number + 1} would listen on port {port} for {listener.name}: there are {PORT_MAX}"
        )
    return replace(listener, port=port)


def _clashes(taken: Sequence[tuple[int, Listener]]) -> Iterator[tuple[int, Listener, int, Listener]]:
    for position, (broker, listener) in enumerate(taken):
        for other_broker, other in taken[:position]:
            if broker != other_broker and want_one_port(listener, other):
                yield broker, listener, other_broker, other


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _text(listeners: Iterator[Listener] | Sequence[Listener]) -> str:
    return ",".join(f"{listener.name}://{_address(listener)}" for listener in listeners)
