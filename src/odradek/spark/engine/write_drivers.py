"""One process that plans and commits the writes of a session's queries, on threads.

Spark (4.3) plans a write in one Python worker and commits it in another, and picks the worker that has been idle for longest.
So a worker seldom meets the same sink twice in a row: it knows neither the sink's last batch nor earlier answers of brokers,
and it has connections of its own. Here all of them are threads of one process. `warm_daemon.py` forks it. Spark sees ordinary
daemons: each listens at a socket, and its workers report the id of the process that Spark started, which ends with the daemon.

PySpark keeps the accumulators and broadcasts of a worker in two dictionaries of its process: each thread has its own. Where
PySpark differs from what is known, or where Spark wants something of a process alone, such as a limit of its memory, a daemon
forks workers as Spark's own does.
"""

from __future__ import annotations

import hmac
import inspect
import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any, Final, NoReturn, TypedDict

from odradek.model.errors import OdradekError
from odradek.model.lazy import lazy
from odradek.spark.engine.arrow_writes import send_by_name

if TYPE_CHECKING:
    from pyspark import serializers
else:
    serializers = lazy("pyspark.serializers")

log: Final = logging.getLogger("odradek.spark")

MODULES: Final = (
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.worker.commit_data_source_write",
)
"""What runs on threads. Each has `main(infile, outfile)`, which reads one request and answers it."""
_UTILS: Final = "pyspark.sql.worker.utils"
_REGISTRIES: Final = {
    "_accumulatorRegistry": (
        "pyspark.accumulators",
        "pyspark.sql.profiler",
        "pyspark.worker_util",
        _UTILS,
    ),
    "_broadcastRegistry": ("pyspark.core.broadcast",),
}
"""The dictionaries of PySpark that belong to one worker, and the modules that have each by name."""
_ERROR_ANSWER: Final = "handle_worker_exception"
_SOCKETS: Final = "PYTHON_WORKER_FACTORY_SOCK_DIR"
_BY_SOCKET_FILES: Final = "PYTHON_UNIX_DOMAIN_ENABLED"
_SECRET: Final = "PYTHON_WORKER_FACTORY_SECRET"
"""The secret that Spark's JVM sends first when it connects by TCP: other users do not know it. Each daemon has its own."""
_LOOPBACK: Final = "127.0.0.1"
_HIDE_TRACEBACK: Final = "SPARK_HIDE_TRACEBACK"
_OF_ONE_PROCESS: Final = (
    "PYSPARK_PLANNER_MEMORY_MB",
    "PYSPARK_SPARK_SESSION_UUID",
    "SPARK_PREFER_IPV6",
    "PYTHON_FAULTHANDLER_DIR",
    "PYTHON_TRACEBACK_DUMP_INTERVAL_SECONDS",
)
"""Variables by which Spark limits or watches a process, which threads cannot have for themselves, or wants another protocol."""
_MESSAGE_MAX_BYTES: Final = 4_096
_READ_BYTES: Final = 4_096
_STRANGER_S: Final = 30.0
"""The time in which a new connection must send the secret."""


class DaemonRequest(TypedDict):
    """The JSON of a request for a daemon: its process, as Spark would have started it."""

    process: int
    arguments: list[str]
    environment: dict[str, str]
    directory: str


class WriteDrivers:
    """The process of the writes, as the process that forks it has it."""

    def __init__(self) -> None:
        self._channel: socket.socket | None = None
        self._of_all: dict[str, Any] = {}
        """What all of its daemons have in common."""

    def accept(
        self,
        request: DaemonRequest,
        descriptors: Sequence[int],
        asking: socket.socket,
        listening: socket.socket,
    ) -> bool:
        """Gives a daemon to the process, which it starts if there is none. False: the daemon is to fork its workers.

        `asking` is the connection of the process that Spark started, which waits for its end, and `listening` the socket that
        it came to: a process that is forked closes its copies of both.
        """
        if not _is_shareable(request):
            return False
        if self._channel is None:
            if not _is_pyspark_known():
                log.info(
                    "this PySpark plans and commits writes in another way: each has a process of its own"
                )
                return False
            self._start(request, descriptors, asking, listening)
        if self._of_all != _common(request):
            return False
        try:
            return self._send(request, [*descriptors, asking.fileno()])
        except OSError as error:
            log.warning("the process of the writes has ended: %s", error)
            self._channel = None
            return False

    def close(self) -> None:
        """Leaves the process to others that have this channel. It ends with its last daemon, when no one has it."""
        if self._channel is not None:
            self._channel.close()

    def _start(
        self,
        request: DaemonRequest,
        descriptors: Sequence[int],
        asking: socket.socket,
        listening: socket.socket,
    ) -> None:
        channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            for unused in (channel, asking, listening):
                unused.close()
            _become(request, descriptors, theirs)
        theirs.close()
        self._channel = channel
        self._of_all = _common(request)

    def _send(self, request: DaemonRequest, descriptors: Sequence[int]) -> bool:
        assert self._channel is not None
        task = _DaemonTask(
            process=request["process"],
            module=request["arguments"][0],
            secret=_secret(request),
        )
        socket.send_fds(self._channel, [json.dumps(task).encode()], descriptors)
        return True


class _DaemonTask(TypedDict):
    """The JSON of a daemon for the process of the writes."""

    process: int
    module: str
    secret: str | None
    """None: a socket is a file, and only this user can connect."""


def _secret(request: DaemonRequest) -> str | None:
    environment = request["environment"]
    has_files = environment.get(_BY_SOCKET_FILES, "").lower() == "true"
    return None if has_files else environment.get(_SECRET, "")


def _common(request: DaemonRequest) -> dict[str, Any]:
    environment = {name: value for name, value in request["environment"].items() if name != _SECRET}
    return {"environment": environment, "directory": request["directory"]}


def _is_shareable(request: DaemonRequest) -> bool:
    environment = request["environment"]
    return (
        request["arguments"][:1] in [[module] for module in MODULES]
        and (_SOCKETS in environment if _secret(request) is None else bool(_secret(request)))
        and not any(name in environment for name in _OF_ONE_PROCESS)
    )


def _is_pyspark_known() -> bool:
    return (
        all(_parameters(path, "main") == ("infile", "outfile") for path in MODULES)
        and _parameters(_UTILS, _ERROR_ANSWER) == ("e", "outfile", "hide_traceback")
        and all(
            len({id(vars(_module(path)).get(name)) for path in paths}) == 1
            and type(vars(_module(paths[0])).get(name)) is dict
            for name, paths in _REGISTRIES.items()
        )
    )


def _parameters(path: str, name: str) -> tuple[str, ...] | None:
    function = vars(_module(path)).get(name)
    return tuple(inspect.signature(function).parameters) if callable(function) else None


def _module(path: str) -> ModuleType:
    _ = lazy(path).__file__
    return sys.modules[path]


# -- in the process of the writes


def _become(request: DaemonRequest, descriptors: Sequence[int], channel: socket.socket) -> NoReturn:
    code = 1
    try:
        os.setpgid(0, 0)  # signals of a terminal are for the session's process
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in (
            1,
            2,
        ):  # Spark reads the port from a daemon's output: what is printed is no part of that
            os.dup2(descriptors[2], number)
        for descriptor in descriptors:
            os.close(descriptor)
        adopt(request)
        for name, paths in _REGISTRIES.items():
            registry = OfThread()
            for path in paths:
                vars(_module(path))[name] = registry
        utils = vars(_module(_UTILS))
        utils[_ERROR_ANSWER] = _error_answer(utils[_ERROR_ANSWER])
        send_by_name(_module(MODULES[0]))
        _Daemons(channel).run()
        code = 0
    finally:
        with suppress(OSError, ValueError):
            sys.stderr.flush()
        os._exit(code)


def adopt(request: DaemonRequest) -> None:
    """Gives this process the environment and the directory that Spark asks for."""
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["directory"])
    sys.path += os.environ.get("PYTHONPATH", "").split(os.pathsep)


class OfThread(MutableMapping[Any, Any]):
    """A dictionary of each thread."""

    def __init__(self) -> None:
        self._local = threading.local()

    @property
    def _items(self) -> dict[Any, Any]:
        items: dict[Any, Any] = self._local.__dict__.setdefault("items", {})
        return items

    def __getitem__(self, key: Any) -> Any:
        return self._items[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._items[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._items[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def _error_answer(pyspark_answer: Callable[..., None]) -> Callable[..., None]:
    """Returns the function that sends an error to Spark. One of ours has no traceback, as in `plain_errors.py`."""
    hides_all = bool(os.environ.get(_HIDE_TRACEBACK))

    def answer(e: BaseException, outfile: IO[bytes], hide_traceback: bool | None = None) -> None:
        hides = hides_all or isinstance(e, OdradekError)
        pyspark_answer(e, outfile, hides if hide_traceback is None else hide_traceback)

    return answer


@dataclass(frozen=True, slots=True, eq=False)
class _Daemon:
    """What Spark takes for a process that forks workers."""

    task: _DaemonTask
    asking: socket.socket
    """The process that Spark started ends when this is closed."""
    input: int
    """Spark writes here which process to kill, and closes it when the daemon must end. A thread ends with its connection."""
    listening: socket.socket

    def close(self) -> None:
        path = self.listening.getsockname()
        self.listening.close()
        if self.task["secret"] is None:
            with suppress(FileNotFoundError):
                os.remove(path)
        os.close(self.input)
        self.asking.close()


class _Daemons:
    """All the daemons of the process. It ends when the process that forked it has ended, and each daemon's input."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._selector = selectors.DefaultSelector()
        self._selector.register(channel, selectors.EVENT_READ, self._receive)

    def run(self) -> None:
        while self._selector.get_map():
            for key, _ in self._selector.select():
                if key.fd in self._selector.get_map():  # it was closed by the one before
                    key.data()

    def _receive(self) -> None:
        content, descriptors, _, _ = socket.recv_fds(self._channel, _MESSAGE_MAX_BYTES, 4)
        if not content:
            self._selector.unregister(self._channel)
            self._channel.close()
            return
        task: _DaemonTask = json.loads(content)
        received, output, errors, asking = descriptors
        os.close(errors)
        listening = _listening() if task["secret"] is None else socket.create_server((_LOOPBACK, 0))
        daemon = _Daemon(task=task, asking=socket.socket(fileno=asking), input=received, listening=listening)
        self._selector.register(received, selectors.EVENT_READ, partial(self._read, daemon))
        self._selector.register(listening, selectors.EVENT_READ, partial(self._accept, daemon))
        daemon.asking.sendall(b"+")
        with os.fdopen(output, "wb") as stream:
            if task["secret"] is None:
                _write_text(listening.getsockname(), stream)
            else:
                _write_int(listening.getsockname()[1], stream)
            stream.flush()

    def _read(self, daemon: _Daemon) -> None:
        if not os.read(daemon.input, _READ_BYTES):
            self._selector.unregister(daemon.input)
            self._selector.unregister(daemon.listening)
            daemon.close()

    def _accept(self, daemon: _Daemon) -> None:
        connection, _ = daemon.listening.accept()
        threading.Thread(
            target=_work, args=[daemon.task, connection], name="odradek-write", daemon=True
        ).start()


def _listening() -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.path.join(os.environ[_SOCKETS], f".{uuid.uuid4()}.sock"))
    listening.listen(socket.SOMAXCONN)
    return listening


def _work(task: _DaemonTask, connection: socket.socket) -> None:
    """Does what a worker of PySpark's daemon does, until Spark closes the connection, or after an error."""
    main = lazy(task["module"]).main
    try:
        with (
            connection,
            connection.makefile("rb") as infile,
            connection.makefile("wb") as outfile,
        ):
            _write_int(task["process"], outfile)
            outfile.flush()
            if task["secret"] is not None:
                connection.settimeout(_STRANGER_S)
                if not _is_spark(task["secret"], infile, outfile):
                    return
                connection.settimeout(None)  # a query may rest for long
            while connection.recv(1, socket.MSG_PEEK):  # nothing: Spark has closed it
                try:
                    main(infile, outfile)
                except SystemExit:  # Spark has the error: it closes the connection when it has read that
                    outfile.flush()
                    while connection.recv(_READ_BYTES):
                        pass
                    return
                outfile.flush()
    except (OSError, EOFError) as error:
        log.debug("a write's query has ended: %s", error)


def _is_spark(secret: str, infile: IO[bytes], outfile: IO[bytes]) -> bool:
    read: Any = serializers.UTF8Deserializer
    is_spark = hmac.compare_digest(str(read().loads(infile)).encode(), secret.encode())
    _write_text("ok" if is_spark else "err", outfile)
    outfile.flush()
    return is_spark


def _write_text(text: str, stream: IO[bytes]) -> None:
    write: Any = serializers.write_with_length
    write(text.encode(), stream)


def _write_int(number: int, stream: IO[bytes]) -> None:
    write: Any = serializers.write_int
    write(number, stream)
