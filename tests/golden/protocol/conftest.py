"""Reads golden frames: bytes that real clients and brokers sent, with what they mean written beside them.

One file holds one or more frames, separated by a line of dashes. A frame is a few `key: value` lines and then its
bytes, without the four bytes of size, as hex on indented lines:

    from: librdkafka 2.16.1
    api: Metadata
    version: 12
    kind: request
    means: MetadataRequest(topics=None)
        0003 000c 0000 0002 ...

`means` is the `repr` of the decoded message, so a reader of the file sees what a frame says, and a change in how we
understand it fails a test. Comment lines begin with #.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class GoldenFrame:
    """One frame as it was on the wire, without its size."""

    source: str
    api: str
    version: int
    kind: str
    means: str
    frame: bytes
    file: str


def read_golden(path: Path) -> Iterator[GoldenFrame]:
    """The frames of one file, in order."""
    for block in path.read_text().split("\n---\n"):
        lines = [line for line in block.splitlines() if line.strip() and not line.startswith("#")]
        keys = dict(line.split(": ", 1) for line in lines if not line.startswith(" "))
        yield GoldenFrame(
            source=keys["from"],
            api=keys["api"],
            version=int(keys["version"]),
            kind=keys["kind"],
            means=keys["means"],
            frame=bytes.fromhex("".join(line for line in lines if line.startswith(" "))),
            file=path.name,
        )


GOLDEN = [golden for path in sorted(FOLDER.glob("*.txt")) for golden in read_golden(path)]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "golden" in metafunc.fixturenames:
        names = [f"{golden.file}-{golden.api}-v{golden.version}-{golden.kind}" for golden in GOLDEN]
        metafunc.parametrize("golden", GOLDEN, ids=names)
