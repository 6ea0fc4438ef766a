"""A certificate ends soon: the brokers' has three days left. A new one is taken over without a restart."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from stage import Incident, Stage, Step, play

from odradek.cli.main import cli

DAY_S: Final = 86_400
DAYS_LEFT: Final = 3


class EndingCertificate(Incident):
    title = "A certificate ends in three days: then no client can connect."
    alert = "CertificateEnds"

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="certificates-")
        self._directory = Path(self._temporary.name)
        cli(["cert", "issue", *self._words(DAYS_LEFT)], standalone_mode=False)
        certificate = self._directory / "broker.pem"
        self.settings = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(certificate),
        }

    def make(self, stage: Stage) -> None:
        stage.until(
            lambda: 0 < self._seconds(stage) < DAYS_LEFT * DAY_S, "the broker shows when its certificate ends"
        )

    def steps(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Whose certificate is it, and when does it end?",
                ["cert", "show", str(self._directory / "broker.pem")],
                f"{DAYS_LEFT} days",
            )
        ]

    def mend(self, stage: Stage) -> Sequence[Step]:
        return [
            Step(
                "Issue another in its place: brokers look every five seconds.",
                ["cert", "issue", *self._words(397)],
            )
        ]

    def is_over(self, stage: Stage) -> bool:
        return self._seconds(stage) > 300 * DAY_S

    def _seconds(self, stage: Stage) -> float:
        return stage.total("odradek_certificate_expires_seconds")

    def _words(self, days: int) -> list[str]:
        return ["broker", "--dir", str(self._directory), "--host", "127.0.0.1", "--days", str(days)]


if __name__ == "__main__":
    play(EndingCertificate())
