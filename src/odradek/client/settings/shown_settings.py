"""Settings as `help` shows them: each keyword argument of a client with its type, default and meaning."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Final, ForwardRef, TypeVar

from odradek.client.settings.security_settings import SecuritySettings
from odradek.client.settings.settings import ClientSettings
from odradek.config.definition import Setting

F = TypeVar("F", bound=Callable[..., None])


_ARGUMENTS: Final = {
    "bootstrap_servers": "Addresses of brokers to ask for the cluster first, as `host:port`: a list, or a text with commas",
    "key_deserializer": "Makes a record's key from its bytes; it is not called for null",
    "value_deserializer": "Makes a record's value from its bytes; it is not called for null",
    "key_serializer": "Makes bytes or text from a key; it is not called for None",
    "value_serializer": "Makes bytes or text from a value; it is not called for None",
    "partitioner": "Returns the partition for a topic, a key and the number of partitions; None leaves it to Kafka's rule",
    "clock": "Another source of time, for simulations",
    "entropy": "Another source of random numbers, for simulations",
}
"""Descriptions of the arguments that are not settings."""


def with_settings(settings: type[ClientSettings], options: type) -> Callable[[F], F]:
    """Decorates an `__init__` that takes `**settings: Unpack[options]`: its signature lists them, and its docstring explains
    them: first this client's own settings, then every client's, then the security settings of connections."""
    types: dict[str, object] = getattr(options, "__annotations__", {})
    shown = sorted(
        settings.settings.items(),
        key=lambda entry: (entry[0] in ClientSettings.settings) + (entry[0] in SecuritySettings.settings),
    )

    def documented(init: F) -> F:
        arguments = list(inspect.signature(init).parameters.values())
        assert arguments[-1].kind is inspect.Parameter.VAR_KEYWORD
        arguments[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=setting.default,
                annotation=_text(types[name]),
            )
            for name, setting in shown
        ]
        init.__signature__ = inspect.Signature(arguments, return_annotation="None")  # type: ignore[attr-defined]
        lead = (
            inspect.getdoc(init)
            if init.__doc__
            else "Takes the settings, by Kafka's names, as keyword arguments."
        )
        beside = [
            f"{argument.name}\n    {_ARGUMENTS[argument.name]}."
            for argument in arguments
            if argument.name in _ARGUMENTS
        ]
        init.__doc__ = "\n".join([f"{lead}\n", *beside, *(_line(name, setting) for name, setting in shown)])
        return init

    return documented


def _line(name: str, setting: Setting) -> str:
    default = "" if setting.default in ("", None, ()) else f" (default: {setting.text(setting.default)})"
    return f"{name}\n    {setting.meaning[:1].upper()}{setting.meaning[1:]}{default}."


def _text(annotation: object) -> object:
    """The type as it is written in the source."""
    return annotation.__forward_arg__ if isinstance(annotation, ForwardRef) else annotation
