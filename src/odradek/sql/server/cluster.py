"""The servers that are known to this one, and what ends a service. Pure.

Source: ksqlDB's `HeartbeatMessage`, `LagReportingMessage`, `ClusterStatusResponse` and `ClusterTerminateRequest`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from odradek.sql.language.rewriting import quoted
from odradek.sql.metastore.catalog import SqlCatalog
from odradek.sql.server.refusals import BAD_REQUEST, RestRefusal

ALIVE_MS: Final = 6_000
"""A server that sent no heartbeat for that long is not alive."""
_HOSTS_MAX: Final = 100
_PATTERN: Final = re.compile(r"[A-Za-z0-9._*-]{1,249}")
_NO_LAGS: Final[Mapping[str, object]] = {"stateStoreLags": {}, "updateTimeMs": 0}


@dataclass(slots=True)
class _KnownHost:
    heard_at_ms: int
    lags: Mapping[str, object] = field(default_factory=lambda: _NO_LAGS)


class KnownHosts:
    """Servers that send heartbeats or lags, by their addresses; the one that was silent longest gives way."""

    def __init__(self) -> None:
        self._hosts: dict[str, _KnownHost] = {}

    def heard(self, message: Mapping[str, object], now_ms: int) -> None:
        """Notes a heartbeat. Raises RestRefusal for a message that names no host."""
        self._note(message.get("hostInfo"), "hostInfo", now_ms)

    def reported(self, message: Mapping[str, object], now_ms: int) -> None:
        """Notes the lags of a host's stores. Raises RestRefusal for a message without them."""
        lags = message.get("hostStoreLags")
        if not isinstance(lags, dict):
            raise RestRefusal(BAD_REQUEST, "the request needs the member hostStoreLags, an object")
        self._note(message.get("ksqlHost"), "ksqlHost", now_ms).lags = {**_NO_LAGS, **lags}

    def _note(self, host: object, member: str, now_ms: int) -> _KnownHost:
        name, port = (host.get("host"), host.get("port")) if isinstance(host, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(port, int):
            raise RestRefusal(
                BAD_REQUEST, f"the request needs the member {member}, an object with host and port"
            )
        address = f"{name[:255]}:{port}"
        known = self._hosts.pop(address, None) or _KnownHost(now_ms)
        known.heard_at_ms = now_ms
        self._hosts[address] = known  # at the end: the first one was silent longest
        if len(self._hosts) > _HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        return known

    def statuses(self, own: str, query_ids: Sequence[str], now_ms: int) -> dict[str, dict[str, object]]:
        """Returns the servers as /clusterStatus shows them; `own` is the address of this one, which runs `query_ids`."""
        others = {
            address: _status(known.heard_at_ms, now_ms, (), known.lags)
            for address, known in self._hosts.items()
            if address != own
        }
        return {own: _status(now_ms, now_ms, query_ids, _NO_LAGS), **others}


def _status(
    heard_at_ms: int, now_ms: int, query_ids: Sequence[str], lags: Mapping[str, object]
) -> dict[str, object]:
    names = ("activeStores", "activePartitions", "standByStores", "standByPartitions")
    return {
        "hostAlive": now_ms - heard_at_ms < ALIVE_MS,
        "lastStatusUpdateMs": heard_at_ms,
        "activeStandbyPerQuery": {query_id: {name: [] for name in names} for query_id in query_ids},
        "hostStoreLags": dict(lags),
    }


# ---- /ksql/terminate


def ending_statements(catalog: SqlCatalog, wanted: object) -> list[str]:
    """Returns the statements that end all queries and drop all sources. `wanted`: topics to delete, names or with `.*` for
    any text; only topics that queries write are deleted, as with ksqlDB. Raises RestRefusal for what is no list of such
    names.
    """
    patterns = [_checked(pattern) for pattern in wanted] if isinstance(wanted, list) else None
    if patterns is None:
        raise RestRefusal(BAD_REQUEST, "the member deleteTopicList must be a list of names of topics")
    written = {query.sink for query in catalog.queries.values() if not query.fills_archive}
    deleted = {
        source.name
        for source in catalog.sources.values()
        if source.name in written and any(_matches(pattern, source.topic) for pattern in patterns)
    }
    return [
        *(f"TERMINATE {quoted(query.id)};" for query in catalog.queries.values() if not query.fills_archive),
        *(f"DROP ARCHIVE {quoted(name)};" for name in catalog.archives),
        *_drops(catalog, deleted),
    ]


def _drops(catalog: SqlCatalog, deleted: set[str]) -> Iterator[str]:
    """Yields DROP statements. Sources whose topics stay come first: a topic that another source has is not deleted."""
    for source in sorted(catalog.sources.values(), key=lambda source: source.name in deleted):
        delete = " DELETE TOPIC" if source.name in deleted else ""
        yield f"DROP {source.kind.upper()} {quoted(source.name)}{delete};"


def _checked(pattern: object) -> list[str]:
    """Returns the parts of a pattern between each `.*`."""
    if (
        not isinstance(pattern, str)
        or _PATTERN.fullmatch(pattern) is None
        or "*" in pattern.replace(".*", "")
    ):
        raise RestRefusal(
            BAD_REQUEST, f"{pattern!r:.80} is no topic: write its name, with .* in the place of any text"
        )
    return pattern.split(".*")


def _matches(parts: list[str], topic: str) -> bool:
    """Looks for part after part, so that the time is bounded. A dot is any sign."""
    first, *others = (
        re.compile("".join("." if sign == "." else re.escape(sign) for sign in part)) for part in parts
    )
    if not others:
        return first.fullmatch(topic) is not None
    matched = first.match(topic)
    for part in others[:-1]:
        matched = matched and part.search(topic, matched.end())
    start = len(topic) - len(parts[-1])
    return matched is not None and matched.end() <= start and others[-1].fullmatch(topic, start) is not None
