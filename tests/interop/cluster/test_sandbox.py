"""The sandbox tells its whole story, and everything that it claims holds."""

from __future__ import annotations

import json
import subprocess

from tests.kit.commands import odradek_command


def sandbox(*words: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        odradek_command("sandbox", *words),
        input=typed,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_every_claim_of_the_story_holds() -> None:
    process = sandbox("--auto", "--json")
    document = json.loads(process.stdout)
    assert [claim["text"] for claim in document["claims"] if not claim["holds"]] == []
    assert document["all"] == document["held"] >= 20
    assert process.returncode == 0


def test_a_lesson_holds_alone_and_whatever_was_done_before_it() -> None:
    process = sandbox("groups", "offsets", typed="produce 20\nconsumer add\nload\nkill 2\nnext\nnext\nquit\n")
    assert "✗" not in process.stdout, process.stdout
    assert process.stdout.count("✓") == 9
    assert process.returncode == 0, process.stderr


def test_with_locked_doors_a_visitor_may_what_rules_allow_and_the_audit_has_the_refusal() -> None:
    process = sandbox("--secure", "--json", "access")
    document = json.loads(process.stdout)
    assert [claim["text"] for claim in document["claims"] if not claim["holds"]] == []
    assert document["held"] == 5
    assert process.returncode == 0, process.stderr
