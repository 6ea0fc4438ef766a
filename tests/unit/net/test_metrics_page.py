"""The metrics listener of programs: who may read it, and in which form."""

from __future__ import annotations

import ssl
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from tests.security.conftest import Pems

from odradek.model.errors import ConfigError
from odradek.net.metrics_page import MetricsPage, PageTerms
from odradek.telemetry.metrics import Family, gauge

TOKEN = "a-token-of-24-characters"


def families() -> list[Family]:
    family = gauge("size", "A size.")
    family.add(7)
    return [family]


def read(url: str, token: str | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    try:
        with urllib.request.urlopen(
            urllib.request.Request(url, headers=headers), timeout=20, context=context
        ) as page:
            return page.status, page.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_without_terms_everyone_may_read() -> None:
    with MetricsPage(PageTerms.of("127.0.0.1:0"), families) as page:
        status, text = read(page.url)
    assert status == 200
    assert "\nsize 7\n" in text
    assert "process_cpu_seconds_total" in text


def test_a_page_with_tokens_shows_nothing_without_one(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{TOKEN}\n")
    tokens.chmod(0o600)
    with MetricsPage(PageTerms.of("127.0.0.1:0", token_file=str(tokens)), families) as page:
        assert read(page.url, TOKEN)[0] == 200
        for wrong in (None, "another", TOKEN + "x"):
            status, text = read(page.url, wrong)
            assert status == 401
            assert "size" not in text
        assert read(f"http://{page.address}/", None)[0] == 401
        assert read(f"http://{page.address}/livez", None) == (200, "alive\n")


def test_a_certificate_makes_it_https(tmp_path: Path) -> None:
    pems = Pems(tmp_path)
    with MetricsPage(PageTerms.of("127.0.0.1:0", certificate=pems.broker), families) as page:
        assert page.url.startswith("https://")
        context = ssl.create_default_context(cafile=pems.ca)
        assert read(page.url, context=context)[0] == 200
        with pytest.raises(OSError):  # noqa: PT011 - whatever the reason is, nothing was read
            read(page.url.replace("https", "http"))


def test_what_cannot_be_used_is_refused_before_it_serves(tmp_path: Path) -> None:
    public = tmp_path / "public"
    public.write_text(TOKEN)
    public.chmod(0o644)
    short = tmp_path / "short"
    short.write_text("short\n")
    short.chmod(0o600)
    for terms, reason in (
        ({"token_file": str(public)}, "every user of this machine can read it"),
        ({"token_file": str(short)}, "16 characters"),
        ({"token_file": str(tmp_path / "absent")}, "cannot be read"),
        ({"certificate": str(tmp_path / "absent")}, "cannot be read"),
        ({"certificate": str(short)}, "cannot be used"),
        ({"key": str(short)}, "needs its certificate"),
    ):
        with pytest.raises(ConfigError, match=reason):
            MetricsPage(PageTerms.of("127.0.0.1:0", **terms), families)
    with pytest.raises(ConfigError, match="not an address"):
        PageTerms.of("localhost")
