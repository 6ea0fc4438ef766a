"""Writes the part about Kafka's own tools in docs/compatibility.md: `python -m tests.interop.kafka_tools.page`."""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

from tests.interop.kafka_tools import transcripts
from tests.interop.kafka_tools.differences import DIFFERENCES
from tests.interop.kafka_tools.settings import VERSION
from tests.interop.kafka_tools.transcripts import SCRIPTS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"
HEADING, NEXT_HEADING = "## Kafka's own tools", "## Beside Kafka"
NOT_RUN: Final = {
    "ConnectInternalTopics": "is of Kafka Connect",
    "ConnectPluginPath": "is of Kafka Connect",
    "JmxTool": "reads JMX, which only a JVM has",
    "LogCompactionTester": "runs for minutes; tests/simulation checks compaction",
    "OAuthCompatibilityTool": "asks a provider of tokens, not a broker",
    "ReplicaVerificationTool": "never ends",
}
"""Tools of the jar that no test runs, and why."""
ELSEWHERE: Final = {
    "DelegationTokenCommand": (
        "kafka-delegation-tokens",
        "creates, describes, renews and expires tokens, whose text is random",
        "test_delegation_tokens.py",
    ),
}
"""Tools whose output is never the same: what they do, and the test of it."""
NO_TOOL: Final = {
    "`kafka-storage`, `kafka-metadata-shell`": "format and read the metadata log of KRaft, which is not here",
    "`kafka-server-start`, `kafka-server-stop`": "start and stop Kafka's broker; `odradek serve` is ours",
    "`connect-*`, `trogdor`": "are programs of their own, which use a broker as any client does",
}
"""Scripts of the release that run no class of the tools' jar."""


def tool_lines() -> list[str]:
    flags: dict[str, dict[str, None]] = defaultdict(dict)
    counts: dict[str, int] = defaultdict(int)
    for name in transcripts.names():
        for command in transcripts.read(name):
            if command.tool in SCRIPTS:
                counts[command.tool] += 1
                flags[command.tool].update(dict.fromkeys(command.flags))
    lines = [
        HEADING,
        "",
        f"The tools of Kafka {VERSION} run unmodified against a broker of this version: {sum(counts.values())} commands,",
        "errors among them. What they print is compared, line by line, with what they print at Apache Kafka",
        "(`tests/interop/kafka_tools/transcripts`); ids, times and measured figures are left out. Exit statuses are the same.",
        "",
        "| tool | commands | options and actions that are run |",
        "|---|---:|---|",
    ]
    lines += [
        f"| `{tool}` | {counts[tool]} | {' '.join(f'`{flag}`' for flag in sorted(flags[tool], key=_plain))} |"
        for tool in sorted(counts)
    ]
    lines += [f"| `{script}` | | {what} (`{test}`) |" for script, what, test in ELSEWHERE.values()]
    if DIFFERENCES:
        lines += ["", "What they print otherwise, and why:", ""]
        lines += [f"- {why}" for why in dict.fromkeys(row.why for row in DIFFERENCES)]
    lines += ["", "Not run:", ""]
    lines += [f"- `{tool}` {why}." for tool, why in NOT_RUN.items()]
    lines += [f"- {scripts} {why}." for scripts, why in NO_TOOL.items()]
    return [*lines, ""]


def _plain(flag: str) -> str:
    return flag.removeprefix("--")


def main() -> int:
    text = PAGE.read_text(encoding="utf-8")
    head, _, tail = text.partition(NEXT_HEADING)
    head = re.split(rf"^{re.escape(HEADING)}$", head, flags=re.MULTILINE)[0]
    PAGE.write_text(head + "\n".join(tool_lines()) + "\n" + NEXT_HEADING + tail, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
