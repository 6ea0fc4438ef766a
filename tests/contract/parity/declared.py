"""The same facts as `recording.py` has of Kafka, of what is declared and served here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tests.contract.parity.operations import OPERATIONS
from tests.contract.parity.recording import Facts

from odradek.broker.cluster.features import FEATURES
from odradek.broker.handlers import Handlers
from odradek.client.aio import AsyncAdmin
from odradek.config.broker import BROKER_SETTINGS
from odradek.config.client_metrics import CLIENT_METRICS_SETTINGS
from odradek.config.definition import Setting
from odradek.config.group import GROUP_SETTINGS, broker_key_of
from odradek.config.topic import TOPIC_SETTINGS
from odradek.model.errors import ConfigError, ErrorCode
from odradek.protocol import APIS, Api, Struct, VersionRange
from odradek.protocol.schema import FRESH_LIST, ArrayKind, Field, Kind, StructKind
from odradek.protocol.versions import NO_VERSIONS, parse_versions

OURS = 10_000
"""From this key on an API is not Kafka's, and from this tag on a field is not."""
NOT_TRIED = ("CLASS", "PASSWORD")
_VERSION_ATTRIBUTES = ("versions", "flexible", "nullable", "tagged")


def normal(facts: Facts) -> Facts:
    """Returns Kafka's facts in the form of ours: names of fields in snake case, ranges of versions as they apply."""
    messages = {}
    around: dict[str, VersionRange] = {}
    for path, about in sorted(facts["message"].items()):
        name, *fields = path.split(".")
        exists = parse_versions(about["versions"])
        served = around[path.rpartition(".")[0]] if fields else exists
        around[path] = _both(exists, served)
        messages[".".join([name, *map(_snake_case, fields)])] = {
            key: _within(parse_versions(value), served) if key in _VERSION_ATTRIBUTES else value
            for key, value in about.items()
        }
    apis = {
        name: {key: value for key, value in about.items() if key != "listeners"}
        for name, about in facts["api"].items()
    }
    return facts | {"message": messages, "api": apis}


def declared(kafka: Facts) -> Facts:
    """Returns our facts. Kafka's say which texts to try as values of settings."""
    facts: Facts = {"api": {}, "message": {}}
    handlers = Handlers()
    for api in APIS.values():
        if api.key < OURS and api.key in handlers:
            facts["api"][api.name] = _api(api)
            for message in (api.request, api.response):
                facts["message"][message.__name__] = {
                    "versions": str(message.VERSIONS),
                    "flexible": _within(message.FLEXIBLE, message.VERSIONS),
                }
                _fields(message, message.__name__, message.VERSIONS, facts["message"])
    facts["error"] = {code.name: {"code": int(code), "retriable": code.retriable} for code in ErrorCode}
    tables: dict[str, Mapping[str, Setting]] = {
        "broker": BROKER_SETTINGS,
        "topic": TOPIC_SETTINGS,
        "group": GROUP_SETTINGS,
        "client-metrics": CLIENT_METRICS_SETTINGS,
    }
    for scope, table in tables.items():
        section = f"{scope} setting"
        facts[section] = {
            key: _setting(scope, setting, kafka[section].get(key, {})) for key, setting in table.items()
        }
    facts["admin"] = {java: {} for java, ours in OPERATIONS.items() if hasattr(AsyncAdmin, ours)}
    facts["feature"] = {
        feature.name: {"min": feature.min_level, "max": feature.max_level} for feature in FEATURES.values()
    }
    finalized = {name: feature.finalized_level for name, feature in FEATURES.items()}
    facts["release"] = {_newest(kafka): finalized}
    return facts


def _newest(kafka: Facts) -> str:
    return max(kafka["release"], key=lambda name: kafka["release"][name]["metadata.version"])


def _api(api: Api) -> dict[str, Any]:
    return {
        "key": api.key,
        "versions": str(api.versions),
        "unstable": api.latest_stable < api.versions.max,
    }


def _fields(struct: type[Struct], path: str, served: VersionRange, facts: dict[str, dict[str, Any]]) -> None:
    for field in struct.FIELDS:
        if field.tag is not None and field.tag >= OURS:
            continue
        here = f"{path}.{field.name}"
        element = _inner(field.kind)
        facts[here] = {
            "type": ("[]" if isinstance(field.kind, ArrayKind) else "")
            + ("struct" if isinstance(element, StructKind) else element.name),
            "versions": _within(field.versions, served),
            "nullable": _within(field.nullable, served),
            "tag": field.tag,
            "tagged": _within(field.tagged, served),
            "ignorable": field.ignorable,
            "default": _default(field),
        }
        if isinstance(element, StructKind):
            _fields(element.cls, here, _both(field.versions, served), facts)


def _inner(kind: Kind[Any]) -> Kind[Any]:
    return kind.element if isinstance(kind, ArrayKind) else kind


def _default(field: Field) -> Any:
    default = field.default
    if default is FRESH_LIST:
        return "[]"
    if isinstance(default, Struct):
        return "struct"
    if isinstance(default, bytes):
        return default.decode()
    return getattr(default, "int", default)


def _within(versions: VersionRange, served: VersionRange) -> str:
    """Returns the part of a range in which the struct around exists: "0-5" and "0+" may be the same."""
    both = _both(versions, served)
    return str(both) if both else "none"


def _both(first: VersionRange, second: VersionRange) -> VersionRange:
    low, high = max(first.min, second.min), min(first.max, second.max)
    return VersionRange(low, high) if low <= high else NO_VERSIONS


def _snake_case(name: str) -> str:
    underscored = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
    return underscored.replace("enable2_pc", "enable_2pc")


def _setting(scope: str, setting: Setting, kafka: Mapping[str, Any]) -> dict[str, Any]:
    if not setting.effective:
        return {"effective": False}
    facts: dict[str, Any] = {
        "type": setting.type.name,
        "default": setting.default_text,
        "internal": setting.internal,
    }
    if kafka.get("type") not in NOT_TRIED:
        facts["accepts"] = {text: _accepts(setting, text) for text in kafka.get("accepts", {})}
    if scope == "broker":
        facts["update"] = setting.dynamic.value
    if scope == "topic":
        facts["broker"] = list(setting.synonyms)
    if scope == "group":
        broker_key = broker_key_of(setting.key)
        facts["broker"] = [] if broker_key is None else [broker_key]
    return facts


def _accepts(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except ConfigError:
        return False
    return True
