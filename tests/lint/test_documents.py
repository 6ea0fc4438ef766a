"""Files that the documents name, and link to, are there; so are the files and decisions that the code names."""

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
_LINK: Final = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"```.*?```|`[^`\n]*`", re.DOTALL)
_PATH: Final = re.compile(r"`((?:src|tests|docs|tools|benchmarks|examples|requirements)/[\w./-]*)`")
_MADE: Final = "benchmarks/results"
"""A folder that is not in the repository: what runs leave there."""
_DECISION: Final = re.compile(r"\b[dD]ecisions? (\d{4})\b")


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


def without_code(text: str) -> str:
    return _CODE.sub("", text)


def anchors(text: str) -> set[str]:
    """Returns the anchors of the headings, as they are shown on the web."""
    headings = re.findall(r"^#+ +(.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_each_row_belongs_to_a_table() -> None:
    """Rows after an empty line are shown as text."""
    for document in DOCUMENTS:
        text = without_code((ROOT / document).read_text(encoding="utf-8"))
        for rows in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
            assert re.search(r"\A.*\n\|[ :|-]+\|\s*$", rows, re.MULTILINE), (
                f"{document}: no head above {rows[:80]}"
            )


@pytest.mark.parametrize("document", [*DOCUMENTS, "CHANGELOG.md"])
def test_links_lead_somewhere(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    broken = []
    for link in _LINK.findall(without_code(text)):
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        if re.match(r"[a-z]+:", link):
            continue
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert not broken, f"{document} has links that lead nowhere: {', '.join(broken)}"


def test_paths_and_decisions_that_are_named_are_there() -> None:
    folders = {parent.as_posix() for name in FILES for parent in Path(name).parents}
    decisions = {Path(name).name[:4] for name in FILES if name.startswith("docs/decisions/")}
    missing = []
    for name in FILES:
        if not name.endswith((".md", ".py")) or name == "CHANGELOG.md":
            continue
        text = (ROOT / name).read_text(encoding="utf-8")
        paths = [path.rstrip("/") for path in _PATH.findall(text) if not path.startswith(_MADE)]
        missing += [f"{name}: {path}" for path in paths if path not in folders and path not in FILES]
        missing += [
            f"{name}: decision {number}" for number in _DECISION.findall(text) if number not in decisions
        ]
    assert not missing, "\n".join(missing)


@pytest.mark.parametrize(
    ("index", "page"),
    [
        (f"{folder}/README.md", name.removeprefix(f"{folder}/"))
        for folder in ("docs", "docs/decisions")
        for name in DOCUMENTS
        if str(Path(name).parent) == folder and Path(name).name != "README.md"
    ],
)
def test_the_index_names_every_page(index: str, page: str) -> None:
    assert f"({page})" in (ROOT / index).read_text(encoding="utf-8"), f"{index} lacks {page}"


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if re.match(r"docs/decisions/[0-9]", name)])
def test_the_index_of_decisions_repeats_their_titles(name: str) -> None:
    heading = (ROOT / name).read_text(encoding="utf-8").partition("\n")[0]
    number, _, title = heading.removeprefix("# ").partition(" ")
    row = f"| [{number}]({Path(name).name}) | {title} |"
    assert row in (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")


def rows_of_the_glossary() -> list[tuple[str, list[str], list[str]]]:
    """(The field's word, files, what to open in them) of the tables in the glossary's first part."""
    part = (ROOT / "docs/glossary.md").read_text(encoding="utf-8").partition("\n## ")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")]
    return [
        (word.strip(), re.findall(r"`([\w./-]+\.py)`", files), re.findall(r"`([\w.]+)`", names))
        for word, files, names in cells
        if files.strip() not in ("file", "---")
    ]


@pytest.mark.parametrize(("word", "files", "names"), rows_of_the_glossary())
def test_the_glossary_leads_to_what_it_names(word: str, files: list[str], names: list[str]) -> None:
    texts = [
        (ROOT / (file if file.startswith("tests/") else f"src/odradek/{file}")).read_text(encoding="utf-8")
        for file in files
    ]
    for part in (part for name in names for part in name.split(".")):
        assert any(re.search(rf"\b{part}\b", text) for text in texts), (
            f"{word}: there is no {part} in {files}"
        )


ROOMS: Final = sorted(
    {"/".join(Path(name).parts[:3]) for name in FILES if re.match(r"src/odradek/\w+/", name)}
)
GUIDES: Final = [name for name in DOCUMENTS if re.match(r"src/odradek/.*README\.md$", name)]


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_a_guide(room: str) -> None:
    assert f"{room}/README.md" in GUIDES


@pytest.mark.parametrize(
    "guide",
    [name for name in DOCUMENTS if re.match(r"(tests|benchmarks|examples|tools)/(.*/)?README\.md$", name)],
)
def test_a_guide_names_the_folders_beside_it(guide: str) -> None:
    folder = f"{Path(guide).parent}/"
    beside = {Path(name.removeprefix(folder)).parts[0] for name in FILES if name.startswith(folder)}
    folders = {name for name in beside if (ROOT / folder / name).is_dir()}
    unnamed = sorted(folders - set(re.findall(r"[\w.-]+", (ROOT / guide).read_text(encoding="utf-8"))))
    assert not unnamed, f"{guide} says nothing of {', '.join(unnamed)}"


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_names_what_is_beside_it(guide: str) -> None:
    folder = f"{Path(guide).parent}/"
    beside = {name.removeprefix(folder).partition("/")[0] for name in FILES if name.startswith(folder)}
    words = set(re.findall(r"\w+", (ROOT / guide).read_text(encoding="utf-8")))
    unnamed = sorted(
        name for name in beside if Path(name).stem not in {*words, "__init__", "__main__", "README", "py"}
    )
    assert not unnamed, f"{guide} says nothing of {', '.join(unnamed)}"
