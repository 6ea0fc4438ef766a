"""What is pinned, what is installed, and what is known about it."""

from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tools.requirement_files import findings, read_advisories, requirement_lines
from tools.sbom import bill, needed, project_bill

ADVISORY = "Some_Lib >=2,<2.5 CVE-1"


@pytest.mark.parametrize(
    ("text", "version", "words"),
    [
        ("lib==1.0", "1.0", None),
        ("lib[extra]==1.0", "1.0", None),
        ("lib>=1.0", "1.0", "lib is not pinned: write lib==1.0"),
        ("lib", None, "lib is not pinned: write lib==VERSION"),
        ("lib==1.0", "1.1", "lib 1.1 is installed"),
        ("lib @ https://example.org/lib.whl", "1.0", "comes from an address"),
        ("-e .", None, "is no requirement"),
        ("some-lib==2.4", "2.4", "some-lib 2.4 is affected by CVE-1"),
        ("some-lib==2.5", "2.5", None),
        ("setuptools>=77", "80", None),
    ],
)
def test_a_requirement_is_pinned_and_not_affected(
    tmp_path: Path, text: str, version: str | None, words: str | None
) -> None:
    (tmp_path / "advisories.txt").write_text(f"# a comment\n\n{ADVISORY}\n")
    advisories = read_advisories(tmp_path / "advisories.txt")
    name = text.partition("=")[0].partition("[")[0].partition(">")[0].partition(" ")[0]
    versions = {} if version is None else {name: version}
    problems = list(findings(iter([("dev.txt:1", text)]), versions, advisories))
    if words is None:
        assert problems == []
    else:
        assert any(words in problem for problem in problems)


def test_a_requirement_is_pinned_once() -> None:
    lines = iter([("dev.txt:1", "a_b==1"), ("pipeline.txt:2", "A-B==1")])
    assert list(findings(lines, {}, [])) == ["pipeline.txt:2: a-b is there already, in dev.txt:1"]


def test_an_advisory_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "advisories.txt"
    path.write_text("lib >>2 CVE-1\n")
    with pytest.raises(ValueError, match=r"advisories.txt:1"):
        read_advisories(path)


def test_the_bill_names_all_that_is_pinned_and_what_it_brings_along() -> None:
    made = project_bill()
    names = {component["name"] for component in made["components"]}
    pinned = {canonicalize_name(Requirement(text).name) for _, text in requirement_lines()}
    assert pinned & set(needed(pinned)) <= names
    references = {component["bom-ref"] for component in made["components"]}
    references.add(made["metadata"]["component"]["bom-ref"])
    assert len(references) == len(made["components"]) + 1
    for dependency in made["dependencies"]:
        assert {dependency["ref"], *dependency["dependsOn"]} <= references
    assert made == project_bill()
    assert all(component["purl"].startswith("pkg:pypi/") for component in made["components"])


def test_another_content_is_another_bill() -> None:
    needs = needed(["click"])
    assert bill(needs, [], "1")["serialNumber"] != bill(needs, ["click"], "1")["serialNumber"]
