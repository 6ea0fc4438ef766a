"""Checks for problems of a broker on this machine. Each check covers one thing and suggests a remedy."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import fcntl
import importlib.util
import os
import resource
import shutil
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from odradek.cli.access import CONNECT_S, NoBrokerError, open_admin
from odradek.cli.output import bytes_text
from odradek.cli.serving.port_owner import listening_owner
from odradek.config.broker import BrokerConfig
from odradek.config.files.properties import parse_properties
from odradek.config.listening.listeners import Listener, format_address
from odradek.config.zookeeper import parse_connect
from odradek.model.errors import ConfigError, OdradekError
from odradek.model.lazy import lazy
from odradek.runtime.real_disk import LOCK_FILE_NAME
from odradek.storage.files.naming import META_PROPERTIES

if TYPE_CHECKING:
    import getpass

    from odradek.records import engine
    from odradek.registry import zookeeper_session
    from odradek.spark.engine import java as spark_java
else:
    getpass = lazy("getpass")
    engine = lazy("odradek.records.engine")
    spark_java = lazy("odradek.spark.engine.java")
    zookeeper_session = lazy("odradek.registry.zookeeper_session")

DESCRIPTORS_LEAST: Final = 4096
FREE_BYTES_LEAST: Final = 1 << 30
FREE_BYTES_NONE: Final = 100 << 20
YEAR_2024_S: Final = 1_704_067_200
_ZOOKEEPER_PATIENCE_MS: Final = 5_000
CLOCK_AHEAD_S: Final = 60

_CLOCK_UNSYNCHRONISED: Final = 5


class Level(Enum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line of the doctor's: what was looked at, what was seen, and what to do if it is not well."""

    level: Level
    about: str
    seen: str
    advice: str = ""


def ok(about: str, seen: str) -> Finding:
    return Finding(level=Level.OK, about=about, seen=seen)


def warn(about: str, seen: str, advice: str) -> Finding:
    return Finding(level=Level.WARN, about=about, seen=seen, advice=advice)


def fail(about: str, seen: str, advice: str) -> Finding:
    return Finding(level=Level.FAIL, about=about, seen=seen, advice=advice)


# -- Listeners


def check_listeners(config: BrokerConfig) -> Iterator[Finding]:
    """Checks whether each listener could be opened now."""
    for listener in config.network.listeners:
        yield check_listener(listener)


def check_listener(listener: Listener) -> Finding:
    about = f"listener {listener}"
    try:
        results = socket.getaddrinfo(
            listener.host or None, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except socket.gaierror as error:
        advice = "name an address of this machine, or leave the host out to listen everywhere"
        return fail(about, f"{listener.host} does not resolve: {error.strerror}", advice)
    family, kind, protocol, _, address = results[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            return _why_not(about, listener, error)
    return ok(about, "free to use")


def _why_not(about: str, listener: Listener, error: OSError) -> Finding:
    if error.errno == errno.EADDRINUSE:
        owner = listening_owner(listener.port)
        if owner is None:
            return fail(
                about, "port in use, by a process that is not visible here", "choose another with --listen"
            )
        seen = f"port in use by process {owner.pid}: {owner.command}"
        if "odradek" in owner.command:
            return warn(
                about, seen, "a broker runs here already: use it, or choose another port with --listen"
            )
        return fail(about, seen, "stop that process, or choose another port with --listen")
    if error.errno == errno.EACCES:
        return fail(about, "no right to use this port", "choose a port above 1023 with --listen")
    if error.errno == errno.EADDRNOTAVAIL:
        advice = "listen on an address of this machine, and put the other one into advertised.listeners"
        return fail(about, "this machine has no such address", advice)
    return fail(about, error.strerror or str(error), "choose another address with --listen")


def check_advertised(config: BrokerConfig) -> Iterator[Finding]:
    """Checks whether the address that clients get leads back to this machine, as far as that can be seen from here."""
    if not config.network.advertised_listeners:
        yield ok("advertised address", "clients get the address to which they connected")
    for listener in config.network.advertised_listeners:
        about = f"advertised {listener}"
        try:
            results = socket.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            seen = f"{listener.host} does not resolve here: {error.strerror}"
            yield warn(
                about, seen, "make sure that it does where clients run, or correct advertised.listeners"
            )
            continue
        address = str(results[0][4][0])
        if _is_loopback(address) and not all(_is_loopback(own.host) for own in config.network.listeners):
            seen = f"{listener.host} is {address}: clients on other machines would connect to themselves"
            yield warn(about, seen, "advertise a name or address that they reach, or nothing at all")
        else:
            yield ok(about, f"resolves to {address}")


def _is_loopback(host: str) -> bool:
    return host == "localhost" or host == "::1" or host.startswith("127.")


# -- Data directories


def check_directories(config: BrokerConfig) -> Iterator[Finding]:
    for path in config.storage.log_dirs:
        yield check_directory(path)
        yield from check_space(path)


def check_directory(path: str) -> Finding:
    """Checks whether files can be written and synced there. Leaves no file, and does not create the
    directory."""
    about = f"data {path}"
    existing = _nearest_existing(path)
    if not os.path.isdir(existing):
        return fail(about, f"{existing} is not a directory", "choose another place with --data")
    if not os.access(existing, os.W_OK | os.X_OK):
        return fail(
            about, f"no right to write in {existing}", f"chown it to {_user()}, or choose another with --data"
        )
    if existing != path:
        return ok(about, "will be made when the broker starts")
    if _locked(path):
        return warn(
            about, "in use by a running broker", "use that broker, or choose another place with --data"
        )
    try:
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"odradek doctor")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return fail(about, f"a file cannot be written: {error.strerror}", "choose another place with --data")
    return ok(about, "can be written and synced")


def _locked(path: str) -> bool:
    """Checks whether another process holds the directory's lock. Makes no lock file where there is none."""
    try:
        with open(os.path.join(path, LOCK_FILE_NAME), "rb+") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def check_identity(config: BrokerConfig) -> Iterator[Finding]:
    """Checks whether the data in the directories is this broker's."""
    clusters: dict[str, str] = {}
    for path in config.storage.log_dirs:
        about = f"owner of {path}"
        try:
            with open(os.path.join(path, META_PROPERTIES), encoding="utf-8") as file:
                meta = parse_properties(file.read()).values
        except (OSError, ValueError, ConfigError):
            continue  # no data yet; a damaged file is the broker's to explain
        node, cluster = meta.get("node.id", meta.get("broker.id", "")), meta.get("cluster.id", "")
        clusters.setdefault(cluster, path)
        if node != str(config.server.node_id):
            advice = f"start with --set node.id={node}, or choose another place with --data"
            yield fail(about, f"the data belongs to broker {node}, not {config.server.node_id}", advice)
        elif len(clusters) > 1:
            first = next(iter(clusters.values()))
            yield fail(
                about,
                f"its cluster differs from the cluster of {first}",
                "use directories of one cluster only",
            )
        else:
            yield ok(about, f"broker {node} of cluster {cluster}")


def check_space(path: str) -> Iterator[Finding]:
    about = f"space for {path}"
    try:
        free = shutil.disk_usage(_nearest_existing(path)).free
    except OSError as error:
        yield warn(about, error.strerror or str(error), "look at the file system")
        return
    seen = f"{bytes_text(free)} free"
    advice = "free some, lower retention, or move with --data: a full disk takes partitions offline"
    if free < FREE_BYTES_NONE:
        yield fail(about, seen, advice)
    elif free < FREE_BYTES_LEAST:
        yield warn(about, seen, advice)
    else:
        yield ok(about, seen)


def _nearest_existing(path: str) -> str:
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return path


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


# -- The machine


def check_descriptors() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= DESCRIPTORS_LEAST:
        return ok("open files", f"{soft} allowed")
    advice = f"ulimit -n {min(hard, 65536) if hard > 0 else 65536}: each connection and each open segment takes some"
    return warn("open files", f"only {soft} allowed", advice)


def check_clock(config: BrokerConfig) -> Iterator[Finding]:
    """Checks that the machine's clock is right, which retention and timestamps need."""
    now_s = time.time()
    newest_s = max((_modified_s(path) for path in config.storage.log_dirs), default=0.0)
    if now_s < YEAR_2024_S:
        yield fail("clock", "it shows a time before 2024", "set it: retention and timestamps depend on it")
    elif newest_s > now_s + CLOCK_AHEAD_S:
        seen = f"the data directory was changed {newest_s - now_s:.0f} s in the future"
        yield warn("clock", seen, "it went back: retention may keep data for longer")
    elif is_unsynchronised():
        yield warn("clock", "the system says that it is not synchronised", "run a time service (NTP)")
    else:
        yield ok("clock", time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s)))


def _modified_s(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0


def is_unsynchronised() -> bool:
    """Linux's own opinion (adjtimex); False where it cannot be had."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        state = ctypes.create_string_buffer(512)  # larger than struct timex everywhere; zeros: change nothing
        return int(libc.adjtimex(state)) == _CLOCK_UNSYNCHRONISED
    except (OSError, AttributeError):
        return False


def check_python() -> Finding:
    return ok("python", f"{sys.version.split()[0]} at {sys.executable}")


def check_engine() -> Finding:
    """Records are decoded by compiled code where it was built."""
    if engine.active is not engine.PLAIN:
        return ok("record engine", "compiled")
    if engine.compiled() is not None:
        return warn(
            "record engine", "plain Python, as ODRADEK_PURE asks", "unset ODRADEK_PURE: compiled is faster"
        )
    advice = "install a C compiler and reinstall: everything works, clients in Python are slower"
    return warn("record engine", "plain Python", advice)


def check_java() -> Finding:
    """Checks Java, which only Spark needs."""
    java = spark_java.find_java()
    if java.problem is None:
        return ok("java", f"version {java.version} at {java.path}")
    problem, _, advice = java.problem.removesuffix(".").partition(": ")
    return warn("java", problem, f"{advice}; only Spark pipelines need it")


def check_extras() -> Finding:
    """Packages that the broker can do without."""
    results = {
        name: importlib.util.find_spec(name) is not None for name in ("kazoo", "pyarrow", "pyspark", "uvloop")
    }
    return ok("extras", ", ".join(name if there else f"no {name}" for name, there in results.items()))


# -- A running broker


def check_bootstrap(bootstrap: str) -> Iterator[Finding]:
    """Checks whether a broker answers there, and whether the addresses that it tells clients can be reached."""
    about = f"broker at {bootstrap}"
    try:
        with open_admin(bootstrap, patience_ms=5_000) as admin:
            cluster = admin.describe_cluster()
    except NoBrokerError as error:
        seen, _, advice = str(error).rpartition(": ")
        yield fail(about, seen, advice)
        return
    except (OdradekError, OSError) as error:
        yield fail(
            about,
            " ".join(str(error).split()),
            "make sure that it is a broker, and give --command-config where it wants a login",
        )
        return
    yield ok(about, f"cluster {cluster.cluster_id} with {len(cluster.brokers)} broker(s)")
    for broker in cluster.brokers:
        yield _check_advertised(
            f"advertised address of broker {broker.broker_id}", broker.host, broker.port, bootstrap
        )


def _check_advertised(about: str, host: str, port: int, bootstrap: str) -> Finding:
    address = format_address(host, port)
    advice = "clients are sent there: correct advertised.listeners of that broker"
    try:
        socket.create_connection((host, port), timeout=CONNECT_S).close()
    except OSError as error:
        return fail(about, f"{address} cannot be reached from here: {error.strerror or error}", advice)
    asked = bootstrap.split(",")[0].rpartition(":")[0].strip("[]")
    if _is_loopback(host) and not _is_loopback(asked):
        return fail(about, f"{address} is this machine itself, not {asked}", advice)
    return ok(about, f"{address} can be reached")


def check_zookeeper(config: BrokerConfig) -> Iterator[Finding]:
    """Checks whether ZooKeeper lets the broker in, and which brokers are there. Only reads, and creates nothing there."""
    if config.zookeeper.connect is None:
        return
    about = f"zookeeper {config.zookeeper.connect}"
    try:
        yield ok(about, asyncio.run(_probe_zookeeper(config)))
    except OdradekError as error:
        seen, _, advice = str(error).rpartition(": ")
        yield fail(about, seen or advice, advice if seen else "")


async def _probe_zookeeper(config: BrokerConfig) -> str:
    chroot = parse_connect(config.zookeeper.connect or "").chroot
    session = zookeeper_session.Session(config.zookeeper, watched=lambda: ())
    await session.begin(
        min(config.zookeeper.connection_timeout_ms or _ZOOKEEPER_PATIENCE_MS, _ZOOKEEPER_PATIENCE_MS)
    )
    try:
        if await session.get(f"{chroot}/odradek") is None:
            return "reached; no cluster there yet"
        brokers = await session.children(f"{chroot}/brokers/ids")
    finally:
        await session.close()
    return f"reached; brokers that live: {', '.join(brokers) or 'none'}"
