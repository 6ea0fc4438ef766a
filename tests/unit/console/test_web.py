"""Sessions, attempts, words and paths of the console: pure parts."""

from __future__ import annotations

import re
import string

import pytest

from odradek.console.web.catalogue import LANGUAGES, PLURAL_FORMS, catalogue, preferred_language
from odradek.console.web.gate import host_name
from odradek.console.web.sessions import (
    ABSOLUTE_S,
    FREE_ATTEMPTS,
    IDLE_S,
    PAUSE_MAX_S,
    Attempts,
    ConsoleSessions,
    form_token,
)
from odradek.console.web.visit import own_path


def fields(template: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@pytest.mark.parametrize("language", LANGUAGES)
def test_languages_have_the_same_texts_of_the_same_fields(language: str) -> None:
    english, other = catalogue("en").texts, catalogue(language).texts
    assert english.keys() == other.keys()
    assert [key for key in english if fields(english[key]) != fields(other[key])] == []


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_word_that_agrees_with_a_number_has_every_form(language: str) -> None:
    texts = catalogue(language).texts.values()
    words = [spec for text in texts for _, _, spec, _ in string.Formatter().parse(text) if spec]
    assert words
    assert [spec for spec in words if spec.count("|") + 1 != PLURAL_FORMS[language]] == []


@pytest.mark.parametrize(
    ("language", "count", "written"),
    [
        ("en", 1, "It holds 1 replica,"),
        ("en", 0, "It holds 0 replicas,"),
        ("en", 1600, "It holds 1\u202f600 replicas,"),
        ("ru", 1, "На нём 1 реплика,"),
        ("ru", 22, "На нём 22 реплики,"),
        ("ru", 11, "На нём 11 реплик,"),
        ("ru", 113, "На нём 113 реплик,"),
        ("ru", 101, "На нём 101 реплика,"),
        ("ru", 1600, "На нём 1\u202f600 реплик,"),
    ],
)
def test_words_agree_with_numbers(language: str, count: int, written: str) -> None:
    assert catalogue(language).text("troubles.broker_dead.why", replicas=count).startswith(written)


def test_russian_has_one_word_for_a_partition() -> None:
    texts = catalogue("ru").texts
    assert [
        key for key in texts if re.search(r"\bраздел(|а|у|ом|е|ы|ов|ам|ами|ах)\b", texts[key].lower())
    ] == []


def test_numbers_and_sizes_read_as_people_of_the_language_write_them() -> None:
    english, russian = catalogue("en"), catalogue("ru")
    assert english.number(1234567) == "1\u202f234\u202f567"
    assert (english.number(-1), english.size(None)) == ("–", "–")
    assert (english.size(1536), russian.size(1536)) == ("1.5\u00a0KiB", "1,5\u00a0КиБ")
    assert (english.size(0), english.size(20 << 40)) == ("0\u00a0B", "20\u00a0TiB")
    assert english.text("overview.broker", broker=1001) == "Broker 1001"
    assert (english.seconds(0.4), english.seconds(90), english.seconds(7200)) == ("0 s", "90 s", "2 h")


@pytest.mark.parametrize(
    ("header", "language"),
    [("", "en"), ("ru-RU,ru;q=0.9,en;q=0.8", "ru"), ("de, en;q=0.5, ru;q=0.4", "en"), ("en;q=x, ru", "ru")],
)
def test_the_browser_says_which_language_it_likes_best(header: str, language: str) -> None:
    assert preferred_language(header) == language


def test_sessions_end_when_idle_and_in_any_case_after_a_while() -> None:
    sessions = ConsoleSessions()
    session_id = sessions.begin("ann", "secret", 0.0)
    assert sessions.get(session_id, IDLE_S) is not None
    assert sessions.get(session_id, 2 * IDLE_S + 1) is None
    session_id = sessions.begin("ann", "secret", 0.0)
    now_s = 0.0
    while now_s + IDLE_S <= ABSOLUTE_S:
        now_s += IDLE_S
        assert sessions.get(session_id, now_s) is not None
    assert sessions.get(session_id, ABSOLUTE_S + 1) is None
    assert len(sessions) == 0


def test_sessions_are_bounded_and_have_ids_that_no_one_chooses() -> None:
    sessions = ConsoleSessions(sessions_max=2)
    first, second, third = (sessions.begin("ann", "secret", 0.0) for _ in range(3))
    assert len({first, second, third}) == 3
    assert sessions.get(first, 0.0) is None
    assert sessions.get(third, 0.0) is not None
    assert sessions.get("chosen", 0.0) is None
    assert "secret" not in repr(sessions.get(third, 0.0))
    sessions.end(third)
    assert (sessions.get(third, 0.0), sessions.has("ann")) == (None, True)
    sessions.expire(IDLE_S + 1)
    assert len(sessions) == 0


def test_wrong_passwords_cost_time_that_doubles_by_name_and_by_address() -> None:
    attempts = Attempts()
    for _ in range(FREE_ATTEMPTS):
        assert attempts.wait_s(("name ann", "address a"), 0.0) == 0.0
        attempts.fail(("name ann", "address a"), 0.0)
    first = attempts.wait_s(("name ann",), 0.0)
    assert first > 0
    assert attempts.wait_s(("name bob", "address a"), 0.0) == first
    assert attempts.wait_s(("name bob", "address b"), 0.0) == 0.0
    attempts.fail(("name ann",), 0.0)
    assert attempts.wait_s(("name ann",), 0.0) == 2 * first
    for _ in range(100):
        attempts.fail(("name ann",), 0.0)
    assert attempts.wait_s(("name ann",), 0.0) == PAUSE_MAX_S
    attempts.forget("name ann")
    assert attempts.wait_s(("name ann",), 0.0) == 0.0


def test_a_right_password_gives_back_its_own_attempt_only() -> None:
    attempts = Attempts()
    for _ in range(FREE_ATTEMPTS + 1):
        attempts.fail(("address a",), 0.0)
    attempts.forgive("address a")
    assert attempts.wait_s(("address a",), 0.0) > 0
    attempts.forgive("address a")
    assert attempts.wait_s(("address a",), 0.0) == 0.0


def test_tokens_belong_to_a_browser_and_a_process() -> None:
    token = form_token(b"key", "browser")
    assert token == form_token(b"key", "browser")
    assert token not in (form_token(b"key", "other"), form_token(b"other", "browser"))


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nset-cookie: x", "", "evil", "/\tx"],
)
def test_no_path_leads_to_another_site(path: str) -> None:
    assert own_path(path) == "/"


def test_paths_of_the_console_are_followed() -> None:
    assert own_path("/topics?search=a") == "/topics?search=a"


@pytest.mark.parametrize(
    ("host", "name"), [("a:1", "a"), ("a", "a"), ("[::1]:1", "[::1]"), ("[::1]", "[::1]"), ("", "")]
)
def test_a_host_has_a_name_and_perhaps_a_port(host: str, name: str) -> None:
    assert host_name(host) == name
