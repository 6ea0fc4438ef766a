"""Real clients' requests with a few bytes changed: whatever one does, the broker goes on for everyone else."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from tests.interop import wire

RECORDINGS = sorted((Path(__file__).parents[2] / "golden" / "clients").glob("*.json"))
LEFT_OUT = {"CreateTopics", "CreatePartitions"}
"""A changed count may be a wish for thousands of partitions, which is legal and takes its time."""


def _frames():
    for path in RECORDINGS:
        for load in json.loads(path.read_text())["requests"]:
            if load["api"] not in LEFT_OUT:
                yield bytes.fromhex(load["frame"])


def _mutated(chance, frame):
    changed = bytearray(frame)
    for _ in range(chance.randrange(1, 5)):
        place = chance.randrange(8, len(changed))  # behind API, version and correlation id
        kind = chance.randrange(4)
        if kind == 0:
            changed[place] ^= 1 << chance.randrange(8)
        elif kind == 1:
            changed[place : place + 4] = chance.choice(
                [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\0"]
            )
        elif kind == 2:
            del changed[place : place + chance.randrange(1, 8)]
        else:
            changed[place:place] = chance.randbytes(chance.randrange(1, 8))
        if len(changed) < 12:
            break
    return bytes(changed)


@pytest.mark.usefixtures("bystander")
@pytest.mark.parametrize("seed", range(4))
def test_a_mutated_request_harms_no_one_but_its_sender(server, connect, seed):
    if server.kind == "kafka":
        pytest.skip("Kafka logs tracebacks for these, which is its affair")
    chance = random.Random(seed)
    before = server.memory_bytes()
    logged = len(server.log_text())
    for frame in _frames():
        mutated = _mutated(chance, frame)
        with wire.Connection(server.address) as peer:
            peer.send_raw(struct.pack(">i", len(mutated)) + mutated)
            peer.send_raw(wire.frame(wire.API_VERSIONS, 0, 1, b""))
    assert connect().call(wire.API_VERSIONS, 0, b"").int16() == 0
    said = server.log_text()[logged:]
    assert "Traceback" not in said
    assert " ERROR " not in said
    assert server.memory_bytes() - before < 64 << 20
