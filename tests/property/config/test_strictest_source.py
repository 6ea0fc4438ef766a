"""Files, variables, flags, `--secure` and `--listen` together: a listener is never weaker than the strictest of them says."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from unittest.mock import patch

import hypothesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from odradek.cli.serving.broker_settings import gather
from odradek.config.broker import BrokerConfig
from odradek.config.loading import load_broker_config, reconfigured
from odradek.config.sources import ENVIRONMENT_PREFIX
from odradek.model.errors import ConfigError

Settings = dict[str, str]
_NEEDED = {
    "ssl.keystore.location": "/keys/broker.pem",
    "ssl.truststore.location": "/keys/ca.pem",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512",
}
_GUARDS = {"PLAINTEXT": set[str](), "SSL": {"TLS"}, "SASL_PLAINTEXT": {"login"}, "SASL_SSL": {"TLS", "login"}}
_AUTH = ("none", "requested", "required")
_ADDRESSES = st.sampled_from(["127.0.0.1:0", "127.0.0.1:19092", "0.0.0.0:19093"])
_MAPPED = st.sampled_from(tuple(_GUARDS)).map(
    lambda protocol: {
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": f"CLIENTS:{protocol}",
    }
)
_NAMED = st.sampled_from(tuple(_GUARDS)).map(lambda protocol: {"listeners": f"{protocol}://127.0.0.1:0"})
_TWO = st.tuples(st.sampled_from(tuple(_GUARDS)), st.sampled_from(tuple(_GUARDS))).map(
    lambda protocols: {
        "listeners": "CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:{},BROKERS:{}".format(*protocols),
    }
)
_PLAIN = st.fixed_dictionaries(
    {},
    optional={
        "ssl.client.auth": st.sampled_from(_AUTH),
        "listener.name.clients.ssl.client.auth": st.sampled_from(_AUTH),
        "authorizer.class.name": st.sampled_from(
            ["", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"]
        ),
        "allow.everyone.if.no.acl.found": st.sampled_from(["true", "false"]),
        "super.users": st.sampled_from(["User:a", "User:b"]),
    },
)
_SOURCES = st.tuples(st.one_of(st.just({}), _NAMED, _MAPPED, _TWO), _PLAIN).map(
    lambda parts: parts[0] | parts[1]
)


def gathered(
    file: Settings, variables: Settings, flags: Settings, secure: Settings | None, listen: str | None
) -> Settings:
    """What a broker would be started with. ConfigError where it would not."""
    environment = {
        ENVIRONMENT_PREFIX + key.upper().replace(".", "_"): text for key, text in variables.items()
    }
    kept = {name: text for name, text in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    with (
        tempfile.TemporaryDirectory() as directory,
        patch.dict(os.environ, {**kept, **environment}, clear=True),
    ):
        path, place = Path(directory) / "server.properties", Path(directory) / "keys"
        path.write_text("".join(f"{key}={text}\n" for key, text in {**_NEEDED, **file}.items()))
        if secure is not None:
            place.mkdir()
            (place / "server.properties").write_text(
                "".join(f"{key}={text}\n" for key, text in secure.items())
            )
        words = [f"{key}={text}" for key, text in flags.items()]
        return gather(str(path), words, listen, None, secure=None if secure is None else str(place)).values


def own_protocols(source: Mapping[str, str], final: Mapping[str, str]) -> dict[str, str]:
    """The listeners of one source, by its own map or by the final one."""
    entries = f"{final.get('listener.security.protocol.map', '')},{source.get('listener.security.protocol.map', '')}"
    mapped = dict.fromkeys(_GUARDS) | dict(entry.split(":") for entry in entries.split(",") if entry)
    names = [entry.partition("://")[0] for entry in source.get("listeners", "").split(",") if entry]
    return {name: mapped.get(name) or name for name in names}


def is_weaker(source: Mapping[str, str], final: Settings, config: BrokerConfig) -> bool:
    """The broker asks less of someone than the source wants."""
    own = own_protocols(source, final)
    for listener in config.network.listeners:
        meant = [own[listener.name]] if listener.name in own else list(own.values())
        if meant and not set.intersection(*(_GUARDS[name] for name in meant)) <= _GUARDS[listener.protocol]:
            return True
        speaks_of_it = f"listener.name.{listener.name.lower()}.ssl.client.auth" in source
        names = [listener.name] if listener.name in own or not own or speaks_of_it else list(own)
        wanted = [
            source.get(f"listener.name.{name.lower()}.ssl.client.auth", source.get("ssl.client.auth", "none"))
            for name in names
        ]
        counts = config.security[listener.name]
        if counts.uses_tls and min(map(_AUTH.index, wanted)) > _AUTH.index(counts.ssl.client_auth):
            return True
    if source.get("authorizer.class.name") and not config.access.authorizer_class_name:
        return True
    return (
        source.get("allow.everyone.if.no.acl.found") == "false"
        and config.access.allow_everyone_if_no_acl_found
    )


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    file=_SOURCES,
    variables=_SOURCES,
    flags=_SOURCES,
    secure=st.one_of(st.none(), _SOURCES.map(lambda values: _NEEDED | values)),
    listen=st.one_of(st.none(), _ADDRESSES),
)
@example(
    file={"listeners": "SASL_SSL://127.0.0.1:9092"}, variables={}, flags={}, secure=None, listen="127.0.0.1:0"
)
@example(file={}, variables={}, flags={"listeners": "SSL://127.0.0.1:1"}, secure=None, listen="127.0.0.1:0")
@example(
    file={},
    variables={
        "listeners": "CLIENTS://127.0.0.1:0",
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT",
        "ssl.client.auth": "none",
        "listener.name.clients.ssl.client.auth": "requested",
    },
    flags={"listeners": "SSL://127.0.0.1:0"},
    secure=None,
    listen=None,
)
@example(
    file={
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "ssl.client.auth": "requested",
        "listener.name.clients.ssl.client.auth": "none",
    },
    variables={},
    flags={"listeners": "CLIENTS://127.0.0.1:0", "listener.security.protocol.map": "CLIENTS:SSL"},
    secure=None,
    listen=None,
)
@example(file={"allow.everyone.if.no.acl.found": "true"}, variables={}, flags={}, secure=_NEEDED, listen=None)
def test_a_broker_starts_as_strict_as_its_strictest_source_or_not_at_all(
    file: Settings, variables: Settings, flags: Settings, secure: Settings | None, listen: str | None
) -> None:
    spoken = [source for source in (flags, variables, secure, file) if source]
    try:
        final = gathered(file, variables, flags, secure, listen)
        config, _ = load_broker_config(final)
    except ConfigError as error:
        hypothesis.event(f"refused: {re.sub('[^a-z ]', '', str(error))[-40:]}")
        return
    assert not any(is_weaker(source, final, config) for source in spoken)
    if secure is not None and "allow.everyone.if.no.acl.found" not in secure:
        assert not config.access.allow_everyone_if_no_acl_found, "--secure asks for rules"
    strongest = next((source["super.users"] for source in spoken if "super.users" in source), "")
    assert config.access.super_users == strongest, "super users never add up"
    if listen is not None:
        assert str(config.network.listeners[0]).endswith(listen)


@settings(max_examples=30, deadline=None)
@given(file=_SOURCES, listen=_ADDRESSES)
def test_one_source_is_never_refused_for_what_it_says_itself(file: Settings, listen: str) -> None:
    is_one = len(own_protocols(file, file)) < 2
    final = gathered(file, {}, {}, None, listen if is_one else None)
    config, _ = load_broker_config(final)
    assert {listener.name: listener.protocol for listener in config.network.listeners} == (
        own_protocols(file, file) or {"PLAINTEXT": "PLAINTEXT"}
    )


@settings(max_examples=30, deadline=None)
@given(
    static=st.tuples(st.one_of(_NAMED, _MAPPED, _TWO), _PLAIN).map(
        lambda parts: _NEEDED | parts[0] | parts[1]
    ),
    dynamic=st.fixed_dictionaries(
        {},
        optional={
            "ssl.client.auth": st.sampled_from(_AUTH),
            "listener.name.clients.ssl.client.auth": st.sampled_from(_AUTH),
        },
    ),
)
def test_a_running_broker_is_never_weaker_than_it_was_started(static: Settings, dynamic: Settings) -> None:
    config, _ = load_broker_config(static)
    changed = reconfigured(config, {}, dynamic)
    assert not is_weaker(static, static, changed)
    for name, security in changed.security.items():
        wanted = dynamic.get(f"listener.name.{name.lower()}.ssl.client.auth")
        if wanted is not None and security.uses_tls:
            before = config.security[name].ssl.client_auth
            assert _AUTH.index(security.ssl.client_auth) >= max(map(_AUTH.index, (wanted, before)))
