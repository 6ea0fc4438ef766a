"""Options of the console for logins at an identity provider: what does not go together is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.console.login import oidc_provider
from odradek.console.oidc.provider import OidcOptions
from odradek.model.errors import ConfigError


def made(listen: str = "127.0.0.1:8484", **changes: str | bool | None) -> OidcOptions | None:
    options: dict[str, str | bool | None] = {
        "issuer": "https://id.example/realm",
        "client_id": "console",
        "secret_file": None,
        "scope": "openid",
        "sends_id_token": False,
        "ca_file": None,
        "public_url": None,
        "is_tls": False,
        **changes,
    }
    return oidc_provider(listen=listen, **options)  # type: ignore[arg-type]


def test_the_console_is_registered_by_the_address_that_browsers_reach() -> None:
    local = made()
    assert local is not None
    assert local.redirect_uri == "http://127.0.0.1:8484/login/callback"
    public = made("0.0.0.0:8484", public_url="https://console.example/")
    assert public is not None
    assert public.redirect_uri == "https://console.example/login/callback"
    wanted = made(scope="offline_access kafka openid")
    assert wanted is not None
    assert wanted.scope == "openid offline_access kafka"
    assert made(issuer=None, client_id=None) is None


def test_a_secret_comes_from_a_file_that_others_may_not_read(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hush\n")
    file.chmod(0o600)
    options = made(secret_file=str(file))
    assert options is not None
    assert options.client_secret == "hush"
    assert "hush" not in repr(options)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="every user of this machine can read it"):
        made(secret_file=str(file))


@pytest.mark.parametrize(
    ("listen", "changes", "line"),
    [
        ("127.0.0.1:8484", {"issuer": None}, "need --oidc-issuer"),
        ("127.0.0.1:8484", {"client_id": None}, "needs --oidc-client-id"),
        ("0.0.0.0:8484", {}, "needs --public-url"),
        ("127.0.0.1:0", {}, "needs --public-url"),
        ("127.0.0.1:8484", {"issuer": "http://id.example"}, "expected https"),
        ("10.0.0.1:8484", {}, "expected https"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    listen: str, changes: dict[str, str | None], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        made(listen, **changes)
