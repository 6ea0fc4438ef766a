"""Parts of URLs (RFC 2396, as Java's URI), decoded."""

from __future__ import annotations

from typing import Final

from odradek.sql.functions.definitions import ScalarDefinition, scalar


def _decoded(text: str) -> str:
    """Decodes %-escapes only: a plus sign stays."""
    return f"try_url_decode(replace({text}, '+', '%2B'))"


def _part(name: str, description: str, spark: str, kind: str = "STRING", note: str = "") -> ScalarDefinition:
    return scalar(f"URL_EXTRACT_{name}", "URL", description, (f"STRING url -> {kind}", spark), note=note)


_KEY: Final = "replace(url_encode({1}), '+', '%20')"

URLS: Final[tuple[ScalarDefinition, ...]] = (
    scalar(
        "URL_DECODE_PARAM",
        "URL",
        "The text of an encoded parameter.",
        ("STRING text -> STRING", "try_url_decode({0})"),
    ),
    scalar(
        "URL_ENCODE_PARAM",
        "URL",
        "The text as a parameter of a URL: application/x-www-form-urlencoded.",
        ("STRING text -> STRING", "url_encode({0})"),
    ),
    _part("FRAGMENT", "What follows the #.", _decoded("try_parse_url({0}, 'REF')")),
    _part("HOST", "The host.", "try_parse_url({0}, 'HOST')"),
    scalar(
        "URL_EXTRACT_PARAMETER",
        "URL",
        "The value of a parameter; null when it is not there or empty.",
        (
            "STRING url, STRING name -> STRING",
            f"try_url_decode(nullif(try_parse_url({{0}}, 'QUERY', {_KEY}), ''))",
        ),
    ),
    _part("PATH", "The path; empty when there is none.", _decoded("try_parse_url({0}, 'PATH')")),
    _part(
        "PORT",
        "The port, if one is named.",
        r"cast(nullif(regexp_extract(try_parse_url({0}, 'AUTHORITY'), r':([0-9]{1,9})$', 1), '') as int)",
        "INT",
    ),
    _part("PROTOCOL", "The protocol.", "try_parse_url({0}, 'PROTOCOL')"),
    _part("QUERY", "What follows the ?.", _decoded("try_parse_url({0}, 'QUERY')")),
)
