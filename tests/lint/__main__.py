"""All rules in one process, which parses each file of `src` once: `python -m tests.lint`, in the project's directory.

Each rule is a program of its own, too: `python -m tests.lint.names`.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.kit import trees
from tests.lint import (
    access_table,
    digits,
    import_cycles,
    late_imports,
    names,
    private_access,
    sizes,
    stored_errors,
    unused,
)
from tests.lint.prose import fragments, old_words, wording

RULES: Final[Mapping[str, Callable[[], int]]] = {
    "stored_errors": lambda: stored_errors.main([]),
    "import_cycles": import_cycles.main,
    "names": names.main,
    "sizes": sizes.main,
    "wording": wording.main,
    "late_imports": lambda: late_imports.main([]),
    "access_table": access_table.main,
    "private_access": private_access.main,
    "digits": lambda: digits.main([]),
    "unused": unused.main,
    "fragments": fragments.main,
    "old_words": old_words.main,
}


def main(rules: Mapping[str, Callable[[], int]] = RULES) -> int:
    """Runs all rules, also after one that finds something, and names those that did. Returns 1 if one did."""
    broken = [name for name, rule in rules.items() if rule()]
    if broken:
        sys.stderr.write(f"rules that are broken: {', '.join(broken)} (tests/lint says what they are)\n")
    return 1 if broken else 0


if __name__ == "__main__":
    gc.disable()  # a million nodes stay until the end: the collector would walk through them again and again
    trees.keep(path.read_text(encoding="utf-8") for path in Path("src").rglob("*.py"))
    sys.exit(main())
