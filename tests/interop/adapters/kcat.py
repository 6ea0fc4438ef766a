"""kcat: the command-line client, an older librdkafka, one process for each set of headers."""

from __future__ import annotations

import itertools
import re
import shutil
import subprocess
from collections.abc import Sequence

from tests.interop import logins
from tests.interop.adapters.rows import (
    READ_SECONDS_MAX,
    AbsentError,
    Acks,
    Codec,
    DeliveryReport,
    Headers,
    Read,
    RefusedError,
    Row,
)

# Delimiters as bytes, and in the notation of kcat's flags.
_BETWEEN, _BETWEEN_TEXT = b"\x1d", r"\x1d"  # of one byte: it misreads a longer one
_END, _END_TEXT = b"\x1e\x1d\x1e", r"\x1e\x1d\x1e"
_FORMAT = "%p %o %T %K %S|%k%s|%h" + _END_TEXT


class KcatClient:
    """Rows that share headers go in one run, what is empty as null, timestamps are its own clock's."""

    name = "kcat"

    def __init__(self, bootstrap: str) -> None:
        if shutil.which("kcat") is None:
            raise AbsentError("kcat is not on the path (Debian: apt-get install kcat)")
        self.bootstrap = bootstrap

    def produce(
        self,
        topic: str,
        rows: Sequence[Row],
        *,
        codec: Codec = "none",
        acks: Acks = "all",
        idempotent: bool = False,
        request_bytes_max: int = 1_000_000,
    ) -> list[DeliveryReport]:
        settings = [
            f"compression.codec={codec}",
            f"acks={acks}",
            f"enable.idempotence={str(idempotent).lower()}",
            f"message.max.bytes={request_bytes_max}",
        ]
        for (headers, partition), batch in itertools.groupby(rows, _shared):
            flags = ["-P", "-t", topic, "-p", str(partition), "-Z", "-K", _BETWEEN_TEXT, "-D", _END_TEXT]
            for name, value in headers:
                flags += ["-H", name if value is None else f"{name}={value.decode()}"]
            given = b"".join((row.key or b"") + _BETWEEN + (row.value or b"") + _END for row in batch)
            self.run(*flags, *_each("-X", settings), given=given)
        # kcat prints no offsets; no one but the caller writes to the topic, so they follow from the count.
        return [DeliveryReport(partition=row.partition, offset=-1, timestamp_ms=-1) for row in rows]

    def consume(self, topic: str, *, count: int, partition: int = 0, start: int | None = 0) -> list[Read]:
        where = "beginning" if start is None else str(start)
        flags = ["-C", "-t", topic, "-p", str(partition), "-o", where, "-c", str(count), "-e", "-q"]
        out = self.run(*flags, "-X", "check.crcs=true", "-f", _FORMAT)
        return [_read(chunk) for chunk in out.split(_END) if chunk]

    def run(self, *flags: str, given: bytes = b"") -> bytes:
        """Run kcat against the server and return its standard output.

        :raises RefusedError: with kcat's standard error, when it ends with an error or writes one
        """
        process = subprocess.run(
            ["kcat", *logins.kcat_flags(self.bootstrap), *flags],
            input=given,
            capture_output=True,
            timeout=READ_SECONDS_MAX * 2,
            check=False,
        )
        text = process.stderr.decode(errors="replace")
        if process.returncode != 0 or "Delivery failed" in text:
            raise RefusedError(_code_in(text), text.strip())
        return process.stdout


_CODES = {"MSG_SIZE_TOO_LARGE": 10, "Message size too large": 10, "Unknown topic": 3}


def _code_in(text: str) -> int:
    return next((code for words, code in _CODES.items() if words in text), -1)


def _each(flag: str, values: Sequence[str]) -> list[str]:
    return [part for value in values for part in (flag, value)]


def _shared(row: Row) -> tuple[Headers, int]:
    return row.headers, row.partition


def _read(chunk: bytes) -> Read:
    match = re.match(rb"(\d+) (\d+) (-?\d+) (-?\d+) (-?\d+)\|", chunk)
    assert match is not None, chunk[:80]
    partition, offset, timestamp, key_bytes, value_bytes = (int(group) for group in match.groups())
    rest = chunk[match.end() :]
    key_end = max(key_bytes, 0)
    value_end = key_end + max(value_bytes, 0)
    assert rest[value_end : value_end + 1] == b"|", chunk[:80]
    return Read(
        partition=partition,
        offset=offset,
        key=None if key_bytes < 0 else rest[:key_end],
        value=None if value_bytes < 0 else rest[key_end:value_end],
        headers=_headers(rest[value_end + 1 :].decode()),
        timestamp_ms=timestamp,
        timestamp_type="CreateTime",
    )


def _headers(text: str) -> Headers:
    pairs = [pair.partition("=")[::2] for pair in text.split(",")] if text else []
    return tuple((name, None if value == "NULL" else value.encode()) for name, value in pairs)
