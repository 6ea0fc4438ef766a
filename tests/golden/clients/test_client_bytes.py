"""What real clients send, byte by byte: read with our declarations and written again, nothing may change.

`record.py` beside this file made the recordings, and makes them again.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from odradek.protocol import APIS, decode, decode_request_header, encode_request
from odradek.records import check_crc, split_batches, validate_records

RECORDINGS = {
    path.stem: json.loads(path.read_text()) for path in sorted(Path(__file__).parent.glob("*.json"))
}
CASES = [
    pytest.param(entry, id=f"{client}-{entry['api']}-v{entry['version']}-{number}")
    for client, recording in RECORDINGS.items()
    for number, entry in enumerate(recording["requests"])
]


@pytest.mark.parametrize("recorded", CASES)
def test_a_clients_request_is_read_to_its_end_and_written_the_same(recorded):
    frame = bytes.fromhex(recorded["frame"])
    header, position = decode_request_header(frame)
    api = APIS[header.api_key]
    assert (api.name, header.api_version) == (recorded["api"], recorded["version"])
    message, end = decode(api.request, header.api_version, frame, position)
    assert end == len(frame)
    written = encode_request(header, message)
    assert written[4:] == frame
    assert int.from_bytes(written[:4], "big") == len(frame)


@pytest.mark.parametrize("recorded", [case for case in CASES if case.values[0]["api"] == "Produce"])
def test_a_clients_batches_are_valid_records(recorded):
    frame = bytes.fromhex(recorded["frame"])
    header, position = decode_request_header(frame)
    message, _ = decode(APIS[0].request, header.api_version, frame, position)
    for topic in message.topic_data:
        for partition in topic.partition_data:
            for batch_header, batch in split_batches(partition.records):
                check_crc(batch)
                assert validate_records(batch, batch_header).record_count == batch_header.record_count


@pytest.mark.parametrize("client", RECORDINGS)
def test_every_client_was_caught_producing_and_fetching(client):
    assert {"ApiVersions", "Metadata", "Produce", "Fetch"} <= {
        entry["api"] for entry in RECORDINGS[client]["requests"]
    }


def test_the_java_client_is_caught_at_the_versions_of_kafka_4():
    spoken = {(entry["api"], entry["version"]) for entry in RECORDINGS["java"]["requests"]}
    assert {("ApiVersions", 4), ("Produce", 13), ("Metadata", 13)} <= spoken
