"""The location of an archive: a local directory, or a prefix in an S3-compatible store. One set of options for everything.

Three libraries reach the store, and each has option names of its own: `pyarrow.fs` (data files), `deltalake` and
`pyiceberg`. Keys come from the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`), or from
other sources that these libraries read; they are never options, so no plan and no log contains them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote, urlsplit

from odradek.model.errors import ConfigError
from odradek.model.lazy import lazy

if TYPE_CHECKING:
    from pyarrow import fs
else:
    fs = lazy("pyarrow.fs")

_S3_SCHEMES: Final = ("s3", "s3a")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,64}")
"""It becomes a part of a host name."""
_DEFAULT_REGION: Final = "us-east-1"
"""The region for S3-compatible stores without regions, which accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveLocation:
    """A directory (`path` absolute) or a prefix of a bucket (`path` is `bucket/prefix`), and how its store is reached."""

    path: str
    is_s3: bool
    endpoint: str | None = None
    """The store's URL; None is Amazon's own."""
    region: str | None = None

    @property
    def uri(self) -> str:
        """The name for deltalake and for readers: an absolute path, or `s3://bucket/prefix`."""
        return f"s3://{self.path}" if self.is_s3 else self.path

    @property
    def url(self) -> str:
        """The name in Iceberg's form, always with a scheme, and nothing encoded: `file:///dir` or `s3://bucket/prefix`."""
        return self.uri if self.is_s3 else f"file://{self.path}"

    def __str__(self) -> str:
        return self.uri

    def is_named_by(self, location: str) -> bool:
        """Tells whether a URL, as a table keeps its own, is another spelling of this location: links and `..` are followed."""
        scheme, colon, rest = location.rstrip("/").partition(":")
        if self.is_s3:
            return bool(colon) and scheme in _S3_SCHEMES and rest == f"//{self.path}"
        if not colon or scheme != "file":
            rest = location
        elif rest.startswith("//"):
            rest = rest.removeprefix("//")
        return rest.startswith("/") and os.path.realpath(rest) == os.path.realpath(self.path)

    def within(self, relative: str) -> str:
        """Returns the path, for the file system, of something below the root."""
        return f"{self.path}/{relative}"

    def file_system(self) -> fs.FileSystem:
        """Returns the `pyarrow.fs.FileSystem` that `path` is a path of."""
        if not self.is_s3:
            return fs.LocalFileSystem()
        more: dict[str, object] = {}
        if self.endpoint is not None:
            parts = urlsplit(self.endpoint)
            more = {"endpoint_override": parts.netloc, "scheme": parts.scheme}
        return fs.S3FileSystem(region=self._region(), **more)

    def delta_options(self) -> dict[str, str]:
        """Returns deltalake's `storage_options`."""
        if not self.is_s3:
            return {}
        options = {"aws_region": self._region(), "aws_conditional_put": "etag"}
        if self.endpoint is not None:
            options["aws_endpoint"] = self.endpoint
            options["aws_allow_http"] = str(self.endpoint.startswith("http://")).lower()
        return options

    def obstore_options(self) -> dict[str, Any]:
        """Returns the options of obstore's `S3Store`."""
        options: dict[str, object] = {"region": self._region()}
        if self.endpoint is not None:
            options["endpoint"] = self.endpoint
            options["client_options"] = {"allow_http": self.endpoint.startswith("http://")}
        return options

    def iceberg_properties(self) -> dict[str, str]:
        """Returns pyiceberg's properties of a FileIO."""
        if not self.is_s3:
            return {}
        return {"s3.region": self._region()} | (
            {} if self.endpoint is None else {"s3.endpoint": self.endpoint}
        )

    def _region(self) -> str:
        return self.region or _DEFAULT_REGION


def archive_location(
    text: str,
    *,
    endpoint: str | None = None,
    region: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> ArchiveLocation:
    """Parses a user's text: a directory, `file:///dir`, `s3://bucket/prefix` (or `s3a://`); ConfigError for others."""
    variables = os.environ if environment is None else environment
    parts = urlsplit(text)
    if parts.scheme in _S3_SCHEMES:
        if not parts.netloc or not parts.path.strip("/"):
            raise ConfigError(f"{text}: name a bucket and a prefix, as in s3://bucket/archive/orders")
        endpoint = endpoint or variables.get("AWS_ENDPOINT_URL_S3") or variables.get("AWS_ENDPOINT_URL")
        if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
            raise ConfigError(
                f"the endpoint {endpoint!r} is no URL; it looks like https://s3.example.org:9000"
            )
        region = region or variables.get("AWS_REGION") or variables.get("AWS_DEFAULT_REGION")
        if region is not None and _REGION.fullmatch(region) is None:
            raise ConfigError(f"the region {region!r} is no name such as eu-central-1")
        return ArchiveLocation(
            path=f"{parts.netloc}/{parts.path.strip('/')}",
            is_s3=True,
            endpoint=None if endpoint is None else endpoint.rstrip("/"),
            region=region,
        )
    if endpoint is not None or region is not None:
        raise ConfigError(f"{text} is a directory: an endpoint and a region are of use with s3:// only")
    if parts.scheme == "file":
        return ArchiveLocation(path=_absolute(unquote(parts.path)), is_s3=False)
    if "://" in text:
        raise ConfigError(f"{text}: an archive is a directory or s3://bucket/prefix, not {parts.scheme}://")
    return ArchiveLocation(path=_absolute(text), is_s3=False)


def _absolute(path: str) -> str:
    if not path.strip():
        raise ConfigError("the path of an archive is empty")
    return str(Path(path).expanduser().absolute()).rstrip("/") or "/"
