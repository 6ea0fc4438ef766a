"""Files that the documents name are there."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent.parent
_NAMED: Final = re.compile(r"`([\w./-]+\.py)`")
_OF_USERS: Final = {"my_pipeline.py", "setup.py"}
"""Names that stand for something of the reader's."""


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return listed.splitlines()


FILES: Final = tracked()
DOCUMENTS: Final = [name for name in FILES if name.endswith(".md") and name != "CHANGELOG.md"]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_that_a_document_names_are_there(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    known = {f"/{name}" for name in FILES}
    missing = [
        named
        for named in dict.fromkeys(_NAMED.findall(text))
        if named not in _OF_USERS
        and not any(name.endswith(f"/{named.removeprefix('../')}") for name in known)
    ]
    assert not missing, f"{document} names files that are not there: {', '.join(missing)}"
