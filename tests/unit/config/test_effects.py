"""A setting that claims an effect has one: someone outside `config` reads its attribute."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from odradek.config.broker import BROKER_PATHS
from odradek.config.topic import TOPIC_ATTRIBUTES, TOPIC_SETTINGS

SOURCES = Path(__file__).parents[3] / "src" / "odradek"
SPENT_ON_LOADING = {
    "listener.security.protocol.map": "gives listeners their protocol",
    "controller.listener.names": "keeps listeners closed",
    "security.inter.broker.protocol": "becomes inter.broker.listener.name",
    "sasl.enabled.mechanisms": "becomes the mechanisms of a listener",
    "sasl.jaas.config": "is parsed for each mechanism",
    "sasl.mechanism.inter.broker.protocol": "chooses among them",
    "sasl.oauthbearer.client.credentials.client.id": "is part of a listener's TokenClient",
    "sasl.oauthbearer.client.credentials.client.secret": "is part of it, too",
    "sasl.oauthbearer.scope": "is part of it, too",
    "sasl.oauthbearer.header.urlencode": "is part of it, too",
    "sasl.kerberos.service.name": "becomes that of a listener's KerberosIdentity",
    "connections.max.reauth.ms": "is that of each mechanism",
    "odradek.sasl.plain.without.tls.enable": "lets a listener be",
    "internal.segment.bytes": "becomes segment.bytes",
    "config.providers": "are asked before anything is parsed",
    "remote.storage.enable": "is refused",
    "zookeeper.clientCnxnSocket": "must not contradict zookeeper.ssl.client.enable",
    "zookeeper.ssl.keystore.type": "allows PEM alone",
    "zookeeper.ssl.truststore.type": "allows PEM alone",
    "zookeeper.ssl.truststore.password": "opens nothing: PEM files of certificates are not encrypted",
}


@cache
def fields_read() -> frozenset[tuple[str, str]]:
    """Returns what the product reads of what, as pairs of a section and a field. It reads all source files, once."""
    return frozenset(
        names
        for path in SOURCES.rglob("*.py")
        if path.parent.name != "config"
        for names in re.findall(r"\b(\w+)(?:\(\))?\.(?=(\w+))", path.read_text(encoding="utf-8"))
    )


@pytest.mark.parametrize("key", sorted(BROKER_PATHS.keys() - SPENT_ON_LOADING))
def test_a_brokers_setting_is_read(key: str) -> None:
    section, field = BROKER_PATHS[key][-2:]
    owners = {section, "config", "_config"}  # a room that needs one section alone is given that one
    assert any((owner, field) in fields_read() for owner in owners), (
        "move it to unsupported.py, or act upon it"
    )


@cache
def names_read() -> frozenset[str]:
    """Returns the names of the fields that the product reads, of whatever it reads them."""
    return frozenset(name for _, name in fields_read())


@pytest.mark.parametrize("key", sorted(TOPIC_ATTRIBUTES.keys() - SPENT_ON_LOADING))
def test_a_topics_setting_is_read_if_and_only_if_it_claims_an_effect(key: str) -> None:
    assert (TOPIC_ATTRIBUTES[key] in names_read()) == TOPIC_SETTINGS[key].effective
