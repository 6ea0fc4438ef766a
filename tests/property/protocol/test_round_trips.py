"""What is encoded is decoded again, in every version of every message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from odradek.protocol import APIS, Message, decode, encode, encode_chunks

VERSIONS = [
    pytest.param(cls, version, id=f"{cls.__name__}-v{version}")
    for api in APIS.values()
    for cls in (api.request, api.response)
    for version in api.versions
]
Strategies = Callable[[type[Message], int], st.SearchStrategy[Any]]
few = settings(max_examples=8, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("cls", "version"), VERSIONS)
def test_decoding_what_was_encoded_gives_the_same_message(
    cls: type[Message], version: int, messages: Strategies
) -> None:
    @few
    @given(message=messages(cls, version), before=st.binary(max_size=3), after=st.binary(max_size=3))
    def check(message: Message, before: bytes, after: bytes) -> None:
        encoded = encode(message, version)
        assert b"".join(encode_chunks(message, version)) == encoded
        frame = bytearray(before + encoded + after)
        for buffer in (bytes(frame), frame, memoryview(frame)):
            decoded, end = decode(cls, version, buffer, len(before))
            assert decoded == message
            assert end == len(before) + len(encoded)

    check()
