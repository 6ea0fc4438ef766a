"""The rule against stored exceptions finds them, and leaves alone what is not one."""

import pytest
from tests.lint.stored_errors import check


def texts(source: str) -> list[str]:
    return [finding.text for finding in check([("module.py", source)])]


STORED = [
    "class A:\n    def __init__(self):\n        self.failure: KafkaError | None = None\nclass KafkaError(Exception): ...",
    "class A:\n    failure: OSError",
    "class A:\n    offline: dict[str, tuple[int, 'OSError']]",
    "class A:\n    def f(self):\n        try: g()\n        except OSError as error:\n            self.failure = error",
    "class A:\n    def f(self, reason: ValueError | None):\n        self.failure = reason or OSError()",
    "class A:\n    def f(self, name, reason: ValueError):\n        self.offline[name] = 1, reason",
    "class A:\n    def f(self):\n        raise self.failure",
    "def f(other):\n    raise other.state.problem",
    "def f(all, error):\n    for one in all:\n        one.set_exception(error)",
    "class A:\n    def f(self):\n        for one in self.all:\n            one.set_exception(self._failure)",
]


_OURS = "class OdradekError(Exception): ...\nclass KafkaError(OdradekError): ...\n"
_CAUGHT = "def f(wanted, outcomes):\n    try: g()\n    except {kind} as error: {then}"


@pytest.mark.parametrize(
    "then",
    [
        "return error",
        "return [error] * len(wanted)",
        "return {name: error if name else None for name in wanted}",
        "outcomes['t'] = error",
        "outcomes.append((1, error))",
    ],
)
def test_an_error_that_goes_on_with_its_traceback_is_found(then: str) -> None:
    assert len(texts(_OURS + _CAUGHT.format(kind="KafkaError", then=then))) == 1
    assert texts(_OURS + _CAUGHT.format(kind="OSError", then=then)) == []
    assert texts(_OURS + _CAUGHT.format(kind="KafkaError", then=then.replace("error", "error.code"))) == []


@pytest.mark.parametrize("source", STORED)
def test_a_stored_exception_is_found(source: str) -> None:
    assert len(texts(source)) == 1


FINE = [
    "class KafkaError(Exception):\n    cause: Exception",
    "class A:\n    failure: ErrorValue[OSError] | None",
    "class A:\n    kind: type[OSError]\n    answered: asyncio.Future[OSError]\n    tell: Callable[[OSError], None]",
    "class A:\n    def f(self):\n        try: g()\n        except OSError as error:\n            self.failure = str(error)",
    "def f():\n    try: g()\n    except OSError as error:\n        failure = error\n    raise failure",
    "class A:\n    @property\n    def failure(self): ...\n    @failure.setter\n    def failure(self, error: OSError): ...\n"
    "    def f(self, error: OSError):\n        self.failure = error\n        raise self.failure",
    "import refusals\ndef f():\n    raise refusals.SessionExpiredError",
    "class A:\n    def f(self):\n        raise self._refusal()",
    "def f(all, error):\n    for one in all:\n        one.set_exception(OSError(error))",
    "def f(all):\n    for one in all:\n        try: g()\n        except OSError as error: one.set_exception(error)",
    "class A:\n    failure: OSError  # stored-error: raised once",
    "class A:\n    # stored-error: raised once\n    failure: OSError",
]


@pytest.mark.parametrize("source", FINE)
def test_what_stores_no_exception_is_left_alone(source: str) -> None:
    assert texts(source) == []


def test_an_exception_of_another_module_is_known() -> None:
    findings = check([("a.py", "class Lost(OSError): ..."), ("b.py", "class A:\n    failure: a.Lost")])
    assert [(finding.path, finding.line) for finding in findings] == [("b.py", 2)]


def test_a_reason_must_be_given() -> None:
    assert texts("class A:\n    failure: OSError  # stored-error:") != []
