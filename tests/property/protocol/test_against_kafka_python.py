"""Our bytes mean the same to kafka-python's codec, and its bytes are ours."""

from __future__ import annotations

import importlib
import pkgutil
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.property.protocol.conftest import is_ours

from odradek.model.ids import ZERO_UUID
from odradek.protocol import (
    APIS,
    Message,
    RequestHeader,
    Struct,
    decode_request_header,
    encode,
    encode_request,
)
from odradek.protocol.messages.metadata.api_versions import ApiVersionsResponse

Strategies = Callable[[type[Message], int], st.SearchStrategy[Any]]
few = settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))

RENAMED = {"generationid": "generationidormemberepoch"}
"""Names of fields that Kafka changed after kafka-python took them over."""
BITFIELDS = {"authorized_operations", "topic_authorized_operations", "cluster_authorized_operations"}
"""kafka-python reads these integers as sets of operations."""


def _peer_classes() -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import kafka.protocol
        from kafka.protocol.api_message import ApiMessage

        for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
            if ".old" not in module.name:
                importlib.import_module(module.name)
    return {cls.__name__: cls for cls in ApiMessage.__subclasses__()}


PEERS = _peer_classes()
KNOWN = [api for api in APIS.values() if f"{api.name}Request" in PEERS]


def known_versions(api: Any) -> list[int]:
    """Returns the versions that kafka-python has, too. `tests/contract/protocol` compares all of them with Kafka's jars."""
    return [version for version in api.versions if version <= PEERS[f"{api.name}Request"].max_version]


VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for api in KNOWN
    for cls in (api.request, api.response)
    for version in known_versions(api)
]


def read(peer: Any, encoded: bytes, version: int) -> Any:
    message = peer.decode(encoded, version=version)
    message._header = None  # decoding leaves it unset, encoding asks for it
    return message


def plain(value: Any) -> Any:
    """Values of either library in one form."""
    if isinstance(value, Struct):
        fields = (field for field in value.FIELDS if not is_ours(field))
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, list | tuple):
        return [plain(element) for element in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value


def same(ours: Any, theirs: Any, version: int) -> bool:
    """Whether a message of theirs holds, in this version's fields, what ours does."""
    if isinstance(ours, Struct):
        if theirs is None:  # a tagged struct that was left out
            return ours == type(ours)()
        named = {name.replace("_", ""): name for name in theirs.fields}
        named |= {renamed: named[old] for old, renamed in RENAMED.items() if old in named}
        return all(
            field.name in BITFIELDS
            or same(getattr(ours, field.name), getattr(theirs, named[field.name.replace("_", "")]), version)
            for field in ours.FIELDS
            if version in field.versions and not is_ours(field)
        )
    if isinstance(ours, list):
        return (
            theirs is not None
            and len(ours) == len(theirs)
            and all(map(same, ours, theirs, [version] * len(ours)))
        )
    if isinstance(ours, uuid.UUID):
        return ours == (theirs or ZERO_UUID)
    return bool(plain(ours) == plain(theirs))


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
def test_kafka_python_reads_our_bytes_and_writes_the_same(
    cls: type[Message], version: int, messages: Strategies
) -> None:
    peer = PEERS[cls.__name__]

    @few
    @given(message=messages(cls, version))
    def check(message: Message) -> None:
        if cls is ApiVersionsResponse:  # an error makes kafka-python read it as version 0
            message = message.replace(error_code=0)
        encoded = encode(message, version)
        theirs = read(peer, encoded, version)
        assert same(message, theirs, version), (message, theirs)
        assert bytes(theirs.encode(version=version)) == encoded

    check()


@pytest.mark.parametrize("api", KNOWN, ids=lambda api: api.name)
def test_request_frames_equal_those_of_kafka_python(api: Any) -> None:
    for version in known_versions(api):
        message = api.request()
        theirs = read(PEERS[f"{api.name}Request"], encode(message, version), version)
        theirs.with_header(correlation_id=7, client_id="someone")
        header = RequestHeader(api.key, version, 7, "someone")
        frame = encode_request(header, message)
        assert frame == bytes(theirs.encode(version=version, header=True, framed=True))
        assert decode_request_header(frame, 4) == (header, len(frame) - len(encode(message, version)))
