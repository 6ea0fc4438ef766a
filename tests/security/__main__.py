"""`python -m tests.security`: run every test that proves a check of security, and print which of the 48 hold."""

import sys
from collections import defaultdict

import pytest
from tests.security.checks import CHECKS

FOLDERS = ("tests/security", "tests/unit", "tests/scenarios", "tests/property")


class Outcomes:
    """A plugin of pytest: the outcome of the tests of each check."""

    def __init__(self) -> None:
        self.numbers: dict[str, tuple[int, ...]] = {}
        self.outcomes: dict[int, list[str]] = defaultdict(list)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for test in items:
            marks = test.iter_markers("check")
            self.numbers[test.nodeid] = tuple(number for mark in marks for number in mark.args)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for number in self.numbers.get(report.nodeid, ()):
                self.outcomes[number].append(report.outcome)

    def verdict(self, number: int) -> str:
        outcomes = self.outcomes[number]
        if "failed" in outcomes:
            return "FAILED"
        return f"holds ({outcomes.count('passed')} tests)" if "passed" in outcomes else "absent"


def main() -> int:
    seen = Outcomes()
    code = pytest.main(["-q", "-n", "0", "-m", "check", *FOLDERS], plugins=[seen])
    for number, title in CHECKS.items():
        sys.stdout.write(f"{number:3}  {seen.verdict(number):18} {title}\n")
    held = sum(seen.verdict(number).startswith("holds") for number in CHECKS)
    sys.stdout.write(f"{held} of {len(CHECKS)} checks hold\n")
    return int(code) or int(held < len(CHECKS))


if __name__ == "__main__":
    sys.exit(main())
