"""A small identity provider with real signatures: it issues codes as a browser would bring them, and tokens for these, once."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

CLIENT_ID: Final = "console"
CLIENT_SECRET: Final = "the console's own"


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")


def number(value: int) -> str:
    return encoded(value.to_bytes((value.bit_length() + 7) // 8, "big"))


class SigningKey:
    """An RSA key."""

    def __init__(self, key_id: str) -> None:
        self.key_id = key_id
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)

    def jwk(self) -> dict[str, str]:
        numbers = self._key.public_key().public_numbers()
        return {
            "kty": "RSA",
            "kid": self.key_id,
            "n": number(numbers.n),
            "e": number(numbers.e),
            "use": "sig",
        }

    def signed(self, claims: dict[str, Any]) -> str:
        header = {"alg": "RS256", "kid": self.key_id}
        parts = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = self._key.sign(parts.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{parts}.{encoded(signature)}"


class IdentityProvider:
    """`claims` and `answer` change what is issued, for attacks. Times come from the console's clock."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.key = SigningKey("first")
        self.lifetime_s = 300
        self.subject = "ann"
        self.claims: dict[str, Any] = {}
        """Claims of ID tokens that differ."""
        self.audience = "kafka"
        """Of access tokens."""
        self.metadata: dict[str, Any] = {}
        """Fields of the metadata that differ."""
        self.forge: Any = None
        """Makes the ID token in place of a signature."""
        self.refuses_refresh = False
        self.asked: list[str] = []
        """The grant types that were asked for, and what was revoked."""
        self._codes: dict[str, dict[str, str]] = {}
        self._refresh_tokens: set[str] = set()
        self._numbers = iter(range(1, 1_000_000))
        self.origin = self.issuer = ""

    @contextmanager
    def running(self, host: str = "127.0.0.1") -> Iterator[IdentityProvider]:
        """Listens on this machine. `host` is the name by which it goes."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if urlsplit(self.path).path.endswith("/authorize"):
                    self.send_response(302)
                    self.send_header("location", provider.authorized(provider.origin + self.path))
                    self.end_headers()
                elif self.path.startswith("/link?"):  # a page of another site with a link to the console
                    self.page(f'<a href="{html.escape(self.path.removeprefix("/link?"))}">the console</a>')
                else:
                    self.reply(*provider.get(self.path))

            def page(self, content: str) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html")
                self.end_headers()
                self.wfile.write(content.encode())

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"])).decode()
                self.reply(
                    *provider.post(self.path, dict(parse_qsl(body)), self.headers.get("authorization", ""))
                )

            def reply(self, status: int, fields: dict[str, Any]) -> None:
                content = json.dumps(fields).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                """Writes nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.origin = f"http://{host}:{server.server_port}"
        self.issuer = f"{self.origin}/realm"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def get(self, path: str) -> tuple[int, dict[str, Any]]:
        if path.endswith("/jwks"):
            return 200, {"keys": [self.key.jwk()]}
        return 200, {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/jwks",
            "end_session_endpoint": f"{self.issuer}/logout",
            "revocation_endpoint": f"{self.issuer}/revoke",
            "authorization_response_iss_parameter_supported": True,
            **self.metadata,
        }

    def authorized(self, url: str, **changes: str) -> str:
        """Plays the user who logs in at the address: returns where the provider sends the browser back."""
        query = {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}
        assert url.startswith(f"{self.issuer}/authorize?")
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT_ID
        assert query["code_challenge_method"] == "S256"
        assert "openid" in query["scope"].split()
        code = f"code-{next(self._numbers)}"
        self._codes[code] = query
        back = {"code": code, "state": query["state"], "iss": self.issuer, **changes}
        return f"{query['redirect_uri']}?{urlencode({name: value for name, value in back.items() if value})}"

    def post(self, path: str, form: dict[str, str], authorization: str) -> tuple[int, dict[str, Any]]:
        secret = base64.b64encode(
            urlencode({CLIENT_ID: CLIENT_SECRET}).replace("=", ":", 1).encode()
        ).decode()
        if authorization != f"Basic {secret}":
            return 401, {"error": "invalid_client"}
        if path.endswith("/revoke"):
            self.asked.append(f"revoke {form['token']}")
            self._refresh_tokens.discard(form["token"])
            return 200, {}
        self.asked.append(form["grant_type"])
        if form["grant_type"] == "refresh_token":
            if self.refuses_refresh or form["refresh_token"] not in self._refresh_tokens:
                return 400, {"error": "invalid_grant"}
            self._refresh_tokens.discard(form["refresh_token"])  # each counts once
            return 200, self._issued({})
        query = self._codes.pop(form["code"], None)
        if query is None or query["redirect_uri"] != form["redirect_uri"]:
            return 400, {"error": "invalid_grant"}
        if encoded(hashlib.sha256(form["code_verifier"].encode()).digest()) != query["code_challenge"]:
            return 400, {"error": "invalid_grant"}
        return 200, self._issued({"nonce": query["nonce"]})

    def _issued(self, more: dict[str, Any]) -> dict[str, Any]:
        now_s = self.clock.wall_ms() // 1000
        times = {"iat": now_s, "exp": now_s + self.lifetime_s, "sub": self.subject, "iss": self.issuer}
        refresh_token = f"refresh-{next(self._numbers)}"
        self._refresh_tokens.add(refresh_token)
        claims = {
            **times,
            "aud": CLIENT_ID,
            "preferred_username": f"{self.subject}@example",
            **more,
            **self.claims,
        }
        return {
            "token_type": "Bearer",
            "expires_in": self.lifetime_s,
            "access_token": self.key.signed({**times, "aud": self.audience, "jti": refresh_token}),
            "id_token": self.forge(claims) if self.forge else self.key.signed(claims),
            "refresh_token": refresh_token,
        }
