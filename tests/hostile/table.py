"""Outcomes as a table for people."""

from __future__ import annotations

from collections.abc import Sequence

from tests.hostile.figures import MEBIBYTE
from tests.hostile.trial import Outcome

_HEAD = (
    f"{'attack':34} {'s':>6} {'RSS MB':>15} {'fds':>11} {'log kB':>8} {'holds':>6}"
    f" {'p50 ms':>7} {'p99':>7} {'max':>8} {'calm s':>7}  verdict"
)


def table(outcomes: Sequence[Outcome], *, is_strict: bool) -> str:
    """Memory and descriptors: before/most/after. Latencies: of the bystander, while the attack went on."""
    lines = [_HEAD, "-" * len(_HEAD)]
    for outcome in outcomes:
        lines.append(_row(outcome, is_strict=is_strict))
        lines += [f"      wrong: {wrong}" for wrong in outcome.wrongs]
        lines += [f"      slow:  {slow}" for slow in outcome.slow]
        lines += _notes(outcome)
    red = [outcome.title for outcome in outcomes if is_bad(outcome, is_strict=is_strict)]
    lines.append(f"{len(outcomes) - len(red)} of {len(outcomes)} hold; bad: {', '.join(red) or 'none'}")
    return "\n".join(lines)


def is_bad(outcome: Outcome, *, is_strict: bool) -> bool:
    return bool(outcome.wrongs) or (is_strict and bool(outcome.slow))


def _row(outcome: Outcome, *, is_strict: bool) -> str:
    if outcome.absent is not None:
        return f"{outcome.title:34} absent: {outcome.absent}"
    before, most, after = outcome.before, outcome.most, outcome.after
    rss = "/".join(str(figures.rss_bytes // MEBIBYTE) for figures in (before, most, after))
    descriptors = "/".join(str(figures.descriptors) for figures in (before, most, after))
    during = outcome.latencies.get("during")
    latency = (
        f"{during.p50_ms:7.1f} {during.p99_ms:7.0f} {during.max_ms:8.0f}"
        if during
        else f"{'-':>7} {'-':>7} {'-':>8}"
    )
    calm = "never" if outcome.seconds_to_calm is None else f"{outcome.seconds_to_calm:.1f}"
    verdict = "BAD" if is_bad(outcome, is_strict=is_strict) else "slow" if outcome.slow else "holds"
    logged = outcome.notes.get("logged_bytes", 0) // 1024
    return (
        f"{outcome.title:34} {outcome.seconds:6.1f} {rss:>15} {descriptors:>11} {logged:8}"
        f" {outcome.loop_hold_count:6} {latency} {calm:>7}  {verdict}"
    )


def _notes(outcome: Outcome) -> list[str]:
    lines = []
    for name, value in outcome.notes.items():
        if name == "worst_frames":
            lines += [
                f"      {row['seconds']:7.2f} s, bystander {row['bystander_ms']:8.0f} ms: {row['api']} v{row['version']},"
                f" {row['count']:,} {row['elements']} {row['array']}, {row['frame_bytes'] // 1000} kB, {row['outcome']}"
                for row in value
            ]
        elif name != "logged_bytes" and value not in (None, "", [], {}):
            lines.append(f"      {name.replace('_', ' ')}: {value}")
    return lines
