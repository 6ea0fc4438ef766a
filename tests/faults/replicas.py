"""Are the replicas of a partition the same, byte for byte? Looked at in the files, once the brokers have stopped."""

from __future__ import annotations

import hashlib
from pathlib import Path


def differing_replicas(placement: list[Path], topic: str, partitions: int) -> list[str]:
    """The partitions whose batches are not the same on all brokers; segments may begin at different offsets."""
    results = []
    for index in range(partitions):
        digests = {home.name: _digest(home / f"{topic}-{index}") for home in placement}
        if len(set(digests.values())) != 1:
            sizes = {name: size for name, (size, _) in digests.items()}
            results.append(f"{topic}-{index}: {sizes}")
    return results


def _digest(log: Path) -> tuple[int, str]:
    digest, size = hashlib.sha256(), 0
    for segment in sorted(log.glob("*.log")):
        data = segment.read_bytes()
        digest.update(data)
        size += len(data)
    return size, digest.hexdigest()
