"""Frames of real clients mean what they meant when they were recorded, and are written again byte by byte."""

from __future__ import annotations

from typing import Any

from odradek.protocol import (
    api_by_name,
    decode,
    decode_request_header,
    decode_response,
    decode_response_header,
    encode_request,
    encode_response,
)


def test_a_recorded_frame_is_understood_and_reproduced(golden: Any) -> None:
    api = api_by_name(golden.api)
    if golden.kind == "request":
        header, position = decode_request_header(golden.frame)
        assert (header.api_key, header.api_version) == (api.key, golden.version)
        message, end = decode(api.request, golden.version, golden.frame, position)
        again = encode_request(header, message)
    else:
        _, position = decode_response_header(api.key, golden.version, golden.frame)
        message, end = decode(api.response, golden.version, golden.frame, position)
        correlation_id, same = decode_response(api.key, golden.version, golden.frame)
        assert same == message
        again = b"".join(encode_response(api.key, golden.version, correlation_id, message))
    assert end == len(golden.frame)
    assert repr(message) == golden.means
    assert again[4:] == golden.frame
