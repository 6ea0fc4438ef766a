"""The fast loop: tests of the cores of what changed since the last commit, or since BASE.

    python -m tools.quick [BASE] [-- PYTEST-ARGUMENTS]

A changed file of a room brings the room's `tests/unit` and `tests/property`; one in a folder that has tests of its own
brings those alone. A changed test brings itself. Without a change it says so and runs nothing.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path, PurePosixPath
from typing import Final

ROOT: Final = Path(__file__).parent.parent
_SOURCE: Final = PurePosixPath("src/odradek")
_KINDS: Final = ("tests/unit", "tests/property", "tests/contract")


def changed(base: str) -> list[PurePosixPath]:
    """Files that differ from `base`, those that git does not track yet included."""
    listed = _git("diff", "--name-only", "--diff-filter=d", base) + _git(
        "ls-files", "--others", "--exclude-standard"
    )
    return [PurePosixPath(name) for name in listed]


def related_tests(path: PurePosixPath, exists: frozenset[str]) -> list[str]:
    """What to run for one changed file; `exists` are the folders of tests that there are."""
    if path.suffix != ".py":
        return []
    if path.parts[0] == "tests":
        return [str(path)] if path.name.startswith("test_") else []
    if not path.is_relative_to(_SOURCE):
        return []
    results = []
    for kind in _KINDS:
        folder = path.relative_to(_SOURCE).parent
        while folder.parts and f"{kind}/{folder}" not in exists:
            folder = folder.parent
        if folder.parts:
            results.append(f"{kind}/{folder}")
    return results


def without_nested(chosen: list[str]) -> list[str]:
    """Each test once: what lies in a folder that is chosen as a whole goes."""
    unique = sorted(dict.fromkeys(chosen))
    return [
        text for text in unique if not any(text.startswith(f"{other}/") for other in unique if other != text)
    ]


def _git(*arguments: str) -> list[str]:
    return subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()


def main() -> int:
    words, _, options = " ".join(sys.argv[1:]).partition("--")
    base = words.strip() or "HEAD"
    exists = frozenset(
        str(folder.relative_to(ROOT))
        for kind in _KINDS
        for folder in (ROOT / kind).rglob("*")
        if folder.is_dir()
    )
    chosen = without_nested([test for path in changed(base) for test in related_tests(path, exists)])
    if not chosen:
        sys.stdout.write(
            f"nothing with unit tests has changed since {base}: name another commit, as in `make quick SINCE=main`\n"
        )
        return 0
    print(*chosen, flush=True)  # noqa: T201 - before the output of pytest
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", *chosen, *options.split()], cwd=ROOT
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
