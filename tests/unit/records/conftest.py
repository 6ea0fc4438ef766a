"""Every test in this folder runs on both record engines; and what it takes to build batches that lie."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from odradek.records import BatchHeader, Codec, compress, engine, read_header
from odradek.records.batch import HEADER_BYTES, write_header

BatchMaker = Callable[..., bytearray]


@pytest.fixture(autouse=True, scope="module", params=["compiled", "plain"])
def record_engine(request: pytest.FixtureRequest) -> Iterator[str]:
    chosen = engine.PLAIN if request.param == "plain" else engine.compiled()
    if chosen is None:
        pytest.skip("the package was installed without a compiler")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "active", chosen)
        yield request.param


@pytest.fixture(scope="session")
def batch_of() -> BatchMaker:
    """`batch_of(records, **header fields)`: a batch with a right CRC around whatever bytes are given."""

    def make(records: bytes, *, codec: Codec = Codec.NONE, **fields: int) -> bytearray:
        said = {"record_count": 1, "base_timestamp": 1_000, "max_timestamp": 1_000, "attributes": int(codec)}
        said |= {"base_offset": 0, "batch_length": 0, "partition_leader_epoch": -1, "magic": 2, "crc": 0}
        said |= {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1}
        said |= fields
        said.setdefault("last_offset_delta", said["record_count"] - 1)
        batch = bytearray(HEADER_BYTES) + compress(codec, records)
        write_header(batch, BatchHeader(**said))
        assert read_header(batch).record_count == said["record_count"]
        return batch

    return make
