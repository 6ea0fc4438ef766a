"""A topic fills the disk: 64 MiB of a disk in memory, and a topic without a limit. Needs Linux' user namespaces."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from stage import Incident, Stage, Step, play

from odradek import Admin, NewTopic, Producer

CLICKS: Final = "clicks"
DISK: Final = "INCIDENT_DISK"
"""The variable with the directory of the small disk: it is set where the disk is mounted."""
MOUNTED: Final = 'mount -t tmpfs -o size=64m none "$INCIDENT_DISK" && exec "$@"'
USABLE_SHARE_MAX: Final = 0.08


def on_a_small_disk(directory: str) -> list[str]:
    """Returns the start of a command that runs with a disk of its own, 64 MiB, mounted on the directory."""
    return [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "env",
        f"{DISK}={directory}",
        "sh",
        "-c",
        MOUNTED,
        "sh",
    ]


class DiskFills(Incident):
    title = "A topic fills the disk: it has no limit."
    alert = "DiskFills"
    settings: Mapping[str, str] = {"log.segment.bytes": "1048576", "log.retention.check.interval.ms": "1000"}

    def __init__(self) -> None:
        directory = os.environ.get(DISK)
        self.data = Path(directory) if directory else None

    def make(self, stage: Stage) -> None:
        with Admin(stage.address) as admin:
            admin.create_topics([NewTopic(CLICKS, 1, 1)])
        with Producer(stage.address, linger_ms=0) as producer:
            while self._usable_share(stage) > USABLE_SHARE_MAX:
                producer.send(CLICKS, os.urandom(500_000)).result()

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Which disk is it, and what is on it?", ["cluster", "describe", "-b", stage.address], "broker"
            ),
            Step(
                "What keeps so much? No retention.bytes is set.",
                ["topic", "describe", CLICKS, "-b", stage.address],
                CLICKS,
            ),
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        limit = ["-c", "retention.bytes=8388608", "-c", "segment.bytes=1048576"]
        return [Step("Keep 8 MiB of it.", ["topic", "alter", CLICKS, *limit, "-b", stage.address])]

    def is_over(self, stage: Stage) -> bool:
        return self._usable_share(stage) > 0.5

    def _usable_share(self, stage: Stage) -> float:
        return stage.total("odradek_log_directory_usable_bytes") / stage.total(
            "odradek_log_directory_total_bytes"
        )


if __name__ == "__main__":
    if DISK in os.environ:
        play(DiskFills())
    else:
        import tempfile

        with tempfile.TemporaryDirectory(prefix="small-disk-") as name:
            import subprocess

            sys.exit(
                subprocess.run([*on_a_small_disk(name), sys.executable, *sys.argv], check=False).returncode
            )
