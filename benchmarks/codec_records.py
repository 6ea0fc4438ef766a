"""How many records per second are written to and read from batches, beside other Python clients, in the same run.

    python -m benchmarks.codec_records [--rounds N] [--only WORD] [--json FILE]

Ours are the compiled engine and its plain twin. Peers: aiokafka (compiled) and kafka-python (plain). Rounds of all of
them are interleaved; the table shows our median and, for each other one, how many times as long it took: median, and
in brackets the lowest and highest ratio of any round.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from odradek.records import (
    BatchBuilder,
    Codec,
    check_crc,
    decode_batch,
    engine,
    read_header,
    validate_records,
)
from odradek.records.arrow import SCHEMA, arrow_to_batches, batches_to_arrow

ROUND_SECONDS = 0.04
BATCH_SIZE_MAX = 64 << 20
Work = Callable[[], object]
Written = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A batch's records."""

    name: str
    records: list[Written]
    codec: Codec = Codec.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One thing to time: the same work by several libraries, ours first."""

    name: str
    record_count: int
    work: dict[str, Work]


def loads() -> list[Load]:
    start = 1_700_000_000_000
    text = b"flight %05d left New York for somewhere warmer and was late, as it had been the day before; "
    trace: list[tuple[str, bytes | None]] = [("trace", b"0123456789abcdef"), ("source", b"bench")]
    return [
        Load(name="1000 x 100 B", records=[(start + n, None, (text % n)[:100], []) for n in range(1000)]),
        Load(
            name="1000 x 100 B, keys",
            records=[(start + n, b"key-%d" % n, (text % n)[:100], []) for n in range(1000)],
        ),
        Load(
            name="1000 x 100 B, 2 headers",
            records=[(start + n, None, (text % n)[:100], trace) for n in range(1000)],
        ),
        Load(name="16 x 1 KiB", records=[(start + n, b"key-%d" % n, (text % n) * 11, []) for n in range(16)]),
        Load(
            name="1000 x 100 B, lz4",
            records=[(start + n, None, (text % n)[:100], []) for n in range(1000)],
            codec=Codec.LZ4,
        ),
        Load(
            name="1000 x 100 B, zstd",
            records=[(start + n, None, (text % n)[:100], []) for n in range(1000)],
            codec=Codec.ZSTD,
        ),
    ]


def our_engines() -> dict[str, engine.Engine]:
    compiled = engine.compiled()
    return ({"odradek": compiled} if compiled else {}) | {"odradek-plain": engine.PLAIN}


def peers() -> dict[str, Any]:
    """Each peer's module of record batches."""
    result = {}
    for name in ("aiokafka", "kafka"):
        try:
            module = __import__(f"{name}.record.default_records", fromlist=["DefaultRecordBatchBuilder"])
        except ImportError:
            continue
        result["kafka-python" if name == "kafka" else name] = module
    return result


def build(load: Load) -> bytearray:
    builder = BatchBuilder(load.codec, BATCH_SIZE_MAX)
    append = builder.append
    for timestamp, key, value, headers in load.records:
        append(timestamp, key, value, headers)
    return builder.build()


def peer_build(module: Any, load: Load) -> object:
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(load.codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=BATCH_SIZE_MAX,
    )
    append = builder.append
    for number, (timestamp, key, value, headers) in enumerate(load.records):
        append(number, timestamp, key, value, headers)
    return builder.build()


def read(batch: bytearray) -> int:
    """What a consumer does: check the CRC, take every record and touch its fields."""
    check_crc(batch)
    return sum(len(record.value or b"") + record.offset for record in decode_batch(batch))


def peer_read(module: Any, batch: bytes) -> int:
    opened = module.DefaultRecordBatch(batch)
    if not opened.validate_crc():
        raise AssertionError("a peer finds our CRC wrong")
    return sum(len(record.value or b"") + record.offset for record in opened)


def peer_to_arrow(module: Any, batch: bytes) -> object:
    """What a user of the peer writes to get columns."""
    opened = module.DefaultRecordBatch(batch)
    opened.validate_crc()
    rows = [
        (
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key,
            record.value,
            record.headers or [],
        )
        for record in opened
    ]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def with_engine(chosen: engine.Engine, action: Callable[[], object]) -> Work:
    def work() -> object:
        engine.active = chosen
        return action()

    return work


def cases() -> list[Case]:
    result = []
    for load in loads():
        result += _cases_of(load)
    return result


def _cases_of(load: Load) -> list[Case]:
    batch = build(load)
    header, content = read_header(batch), bytes(batch)
    rows = batches_to_arrow(batch)
    ours: dict[str, Callable[[], object]] = {
        "write": lambda: build(load),
        "read": lambda: read(batch),
        "validate": lambda: validate_records(batch, header),
        "to Arrow": lambda: batches_to_arrow(batch),
        "from Arrow": lambda: arrow_to_batches(rows, codec=load.codec, max_bytes=BATCH_SIZE_MAX),
    }
    theirs: dict[str, Callable[[Any], object]] = {
        "write": lambda module: peer_build(module, load),
        "read": lambda module: peer_read(module, content),
        "to Arrow": lambda module: peer_to_arrow(module, content),
    }
    result = []
    for name, action in ours.items():
        work = {who: with_engine(chosen, action) for who, chosen in our_engines().items()}
        for who, module in peers().items():
            if name in theirs:
                work[who] = lambda act=theirs[name], module=module: act(module)  # type: ignore[misc]
        result.append(Case(name=f"{name}: {load.name}", record_count=len(load.records), work=work))
    return result


def seconds_each(work: Work, repeat: int) -> float:
    start = time.perf_counter()
    for _ in range(repeat):
        work()
    return (time.perf_counter() - start) / repeat


def measure(case: Case, rounds: int) -> dict[str, list[float]]:
    """Records per second for each library in each round."""
    repeats = {who: max(1, int(ROUND_SECONDS / seconds_each(work, 2))) for who, work in case.work.items()}
    rates: dict[str, list[float]] = {who: [] for who in case.work}
    for _ in range(rounds):
        for who, work in case.work.items():
            rates[who].append(case.record_count / seconds_each(work, repeats[who]))
    return rates


def report(name: str, rates: dict[str, list[float]]) -> str:
    first, *others = rates
    line = f"{name:<36} {first} {statistics.median(rates[first]) / 1e6:6.2f} M/s"
    for who in others:
        ratios = [our / their for our, their in zip(rates[first], rates[who], strict=True)]
        line += f"   {who} x{statistics.median(ratios):.1f} [{min(ratios):.1f}-{max(ratios):.1f}]"
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--json", type=Path, help="also write all rates, in records per second, to this file")
    options = parser.parse_args()
    results = {}
    for case in cases():
        if options.only in case.name:
            results[case.name] = rates = measure(case, options.rounds)
            print(report(case.name, rates), flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
