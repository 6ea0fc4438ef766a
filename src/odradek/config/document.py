"""Writes docs/configuration.md from the tables: `python -m odradek.config.document`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from odradek.config.broker import BROKER_PATHS, BROKER_SETTINGS, OLDER_NAMES, TWINS
from odradek.config.definition import Importance, Setting
from odradek.config.topic import TOPIC_SETTINGS
from odradek.config.unsupported import AREAS

_INTRODUCTION = """\
# Configuration

<!-- Written by `python -m odradek.config.document`, from the tables in src/odradek/config. -->

Odradek uses Kafka's names, defaults and meanings. Where a default differs from Kafka's, it says so
in bold below. A `server.properties` from Kafka works: what has no effect here is named in a warning
when the broker starts. `odradek config describe KEY` tells the same as this page, for one setting.

## Where settings come from

The strongest first:

1. flags: `odradek serve --set log.retention.hours=24` (`--data DIR` is short for `log.dirs`,
   `--listen HOST:PORT` gives the one listener another address and keeps its name, protocol and mechanisms);
2. the environment: `ODRADEK_` and the key in capitals with `_` for each dot, such as
   `ODRADEK_LOG_RETENTION_HOURS=24`. Case does not matter. A few such names are not settings:
   `ODRADEK_BOOTSTRAP`, `ODRADEK_CLIENT_CONFIG`, `ODRADEK_DEBUG`, `ODRADEK_PURE`, and the variables of the project's own tests
   and benchmarks;
3. the file: `odradek serve server.properties`, in Java's properties format;
4. the default.

Some settings say the same thing in different units, and Kafka ranks them: `log.retention.ms` wins
over `log.retention.minutes`, which wins over `log.retention.hours`. That ranking holds within one
source. A stronger source that sets any of them silences what a weaker source says about all of
them, so a flag always wins.

Settings that guard a listener are an exception: the strictest source counts. A stronger source may add TLS, a login, client
certificates or an authorizer to what a weaker one says; where it would take one of them away, the broker does not start, and
one line says which. That holds for `listeners` and `listener.security.protocol.map`, `ssl.client.auth`,
`ssl.endpoint.identification.algorithm`, `odradek.ssl.crl.location`, `authorizer.class.name`, `allow.everyone.if.no.acl.found`,
and `odradek.` settings that open something. A running broker refuses dynamic settings that are weaker than at its start.
`super.users` is as the strongest source has it: users of two sources never add up.

`odradek config show [--set KEY=VALUE]... [server.properties]` prints what `serve` would use and
where it is from.

## Defaults that differ from Kafka's

- **`listeners`** is `PLAINTEXT://127.0.0.1:9092`: a broker without authentication should not be
  reachable from the network before its owner says so. Kafka listens on every interface.
- **`advertised.listeners`**: when it is not set, a client gets the very address to which it
  connected. Kafka answers with the host's name.
- **`log.dir`** is `$XDG_DATA_HOME/odradek`, which is `~/.local/share/odradek` unless you moved it.
  Kafka's `/tmp/kafka-logs` is emptied at reboot; the working directory would make data depend on
  where you started.
- **`node.id`** is 1. Kafka has no default.
- **`socket.send.buffer.bytes`** and **`socket.receive.buffer.bytes`** are -1: the system tunes the
  buffers of each connection. Kafka sets 100 KiB, which switches the tuning off.
- **`log.flush.before.ack`** (on a topic: `flush.before.ack`) is ours: `true` answers `acks=all`
  after fsync.
- **`queued.max.request.bytes`** is 256 MiB, or twice `socket.request.max.bytes` if that is more. Kafka's -1, no limit, lets
  clients that send half a request fill the memory.
- **`queued.max.response.bytes`** is ours: it bounds what is held in memory for clients that do not read.
- **`max.request.elements`** is ours: it bounds the elements in all arrays of one request.

"""

_TABLE_HEAD = "| setting | type | default | allowed | meaning |\n|---|---|---|---|---|\n"


def document() -> str:
    """Returns the whole page."""
    return "".join(_parts())


def _parts() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Topic settings\n\n"
    yield "Given with `odradek topic create --config KEY=VALUE`, changed with `odradek config set --topic`.\n"
    yield "The last column names the broker settings that apply to topics which do not set this.\n\n"
    yield "| setting | type | default | allowed | meaning | broker settings |\n|---|---|---|---|---|---|\n"
    topics = [setting for setting in TOPIC_SETTINGS.values() if not setting.internal]
    for setting in sorted(topics, key=_by_importance):
        if setting.effective:
            yield f"{_row(setting)} {', '.join(f'`{key}`' for key in setting.synonyms)} |\n"
    yield "\nAccepted, and without effect in this version: "
    yield _listed(setting.key for setting in topics if not setting.effective)
    yield ".\n\n"
    yield "## Broker settings\n\n"
    yield _TABLE_HEAD
    own = [BROKER_SETTINGS[key] for key in BROKER_PATHS]
    for setting in sorted([*own, *OLDER_NAMES], key=_by_importance):
        if not setting.internal:
            yield f"{_row(setting)}\n"
    yield "\n## Broker settings that give topics their defaults\n\n"
    yield _TABLE_HEAD
    for key in sorted(TWINS):
        if BROKER_SETTINGS[key].effective:
            yield f"{_row(BROKER_SETTINGS[key])}\n"
    yield "\n## Known, and without effect in this version\n\n"
    yield "Setting one of these gives a warning that names it. A setting that is not on this page\n"
    yield "gives a warning with the nearest name that is.\n"
    for area in AREAS:
        yield f"\n**{area.name}** {area.reason}: {_listed(area.keys.split())}.\n"
    twins = (key for key in TWINS if not BROKER_SETTINGS[key].effective)
    yield f"\n**Defaults of topic settings without effect**: {_listed(twins)}.\n"


def _row(setting: Setting) -> str:
    default = "" if setting.default is None else f"`{setting.default_text}`"
    allowed = setting.valid.allowed if setting.valid else ""
    meaning = setting.meaning.replace("|", "\\|")
    return f"| `{setting.key}` | {setting.type.name.lower()} | {default} | {allowed} | {meaning} |"


def _by_importance(setting: Setting) -> tuple[int, str]:
    return list(Importance).index(setting.importance), setting.key


def _listed(keys: Iterable[str]) -> str:
    return ", ".join(f"`{key}`" for key in sorted(keys))


if __name__ == "__main__":
    sys.stdout.write(document())
