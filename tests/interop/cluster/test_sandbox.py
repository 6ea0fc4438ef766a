"""The sandbox tells its whole story, and everything that it claims holds."""

from __future__ import annotations

import json
import subprocess
import sys


def test_every_claim_of_the_story_holds() -> None:
    told = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from odradek.cli.main import main; sys.exit(main())",
            "sandbox",
            "--auto",
            "--json",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    found = json.loads(told.stdout)
    assert [claim["text"] for claim in found["claims"] if not claim["holds"]] == []
    assert found["all"] == found["held"] >= 20
    assert told.returncode == 0
