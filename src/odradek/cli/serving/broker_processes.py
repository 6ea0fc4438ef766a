"""Brokers as processes of this machine: started together, killed, paused and revived one by one, ended with us.

`serve --brokers N`, the sandbox and `odradek.testing.Cluster` use this. Each broker has a directory of its own below
one that they share, and all of them the registry in it; a broker that lost its parent ends cleanly.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from odradek.cli.serving.broker_settings import written_settings
from odradek.config.listening.listener_addresses import (
    LISTENERS,
    first_address,
    for_brokers,
    with_first_address,
)
from odradek.config.listening.listeners import parse_host_port
from odradek.model.errors import OdradekError

_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 30.0
_READY: Final = "ready "
_ANY_PORT: Final = "PLAINTEXT://127.0.0.1:0"
_TAIL_LINES: Final = 5
_ENTRY: Final = "import sys; from odradek.cli.main import main; sys.exit(main())"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTerms:
    """The terms on which one broker is started. `settings` have Kafka's names."""

    node_id: int
    directory: Path
    listen: str
    """HOST:PORT of the first listener in the settings; of a listener in plain text, where they name none."""
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Settings, which reach the process by a pipe: every user of the machine can read command lines."""
    log_file: Path | None = None
    """The file for its log; None for our standard error."""
    options: Sequence[str] = ()
    apart: bool = False
    """Whether it has a session of its own, so that Ctrl-C on our terminal does not reach it. It still ends with us."""
    prefix: Sequence[str] = ()
    """A command that runs the broker as the same process: in another network namespace, say."""


class BrokerProcess:
    """One broker. Used from one thread; the process is known by its id alone."""

    def __init__(self, terms: BrokerTerms) -> None:
        self.terms = terms
        self.address = ""
        """HOST:PORT, once it is ready. After a restart it is the same."""
        self.process: subprocess.Popen[bytes] | None = None
        """The process of the last start, even if it has ended."""
        self._lifeline = -1
        self._free_port: Callable[[], object] | None = None
        self.was_paused = False

    @property
    def node_id(self) -> int:
        return self.terms.node_id

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.is_alive and self.process is not None else None

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def is_paused(self) -> bool:
        return self.is_alive and self.was_paused

    def start(self) -> None:
        """Start the process; `wait_until_ready` waits until it serves. OdradekError when it runs already."""
        if self.is_alive:
            raise OdradekError(f"broker {self.node_id} runs already, as process {self.pid}")
        self._let_go()
        self._keep_port()
        terms = self.terms
        terms.directory.mkdir(parents=True, exist_ok=True)
        command = [*terms.prefix, sys.executable, "-c", _ENTRY, "serve", "--data", str(terms.directory)]
        command += [*terms.options, "--set", f"node.id={terms.node_id}"]
        content = written_settings(self._settings())
        with ExitStack() as closing:
            inherited = []
            for option in ("--lifeline", "--settings-from"):
                theirs, ours = os.pipe()
                closing.callback(os.close, theirs)
                inherited.append(theirs)
                command += [option, str(theirs)]
                if option == "--lifeline":
                    self._lifeline = ours
            closing.callback(os.close, ours)
            log = closing.enter_context(terms.log_file.open("ab")) if terms.log_file else None
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, pass_fds=inherited, start_new_session=terms.apart
            )
            closing.enter_context(suppress(BrokenPipeError))  # it has ended: `wait_until_ready` reports why
            while content:
                content = content[os.write(ours, content) :]
        self.was_paused = False

    def _settings(self) -> dict[str, str]:
        """Returns the settings that the process is started with. After the first start it always gets the same address."""
        settings = dict(self.terms.settings)
        address = self.address or self.terms.listen
        settings[LISTENERS] = with_first_address(settings, address)
        return settings

    def wait_until_ready(self, timeout_s: float = _START_SECONDS) -> str:
        """Returns the broker's address once it is ready. Raises OdradekError with the last lines of its log when it ended,
        or took longer than `timeout_s`."""
        process = self.process
        assert process is not None, "start() comes first"
        assert process.stdout is not None
        deadline = time.monotonic() + timeout_s
        output = b""
        with selectors.DefaultSelector() as looking:  # select.select refuses descriptors from 1024 on
            looking.register(process.stdout, selectors.EVENT_READ)
            while b"\n" not in output:
                if not looking.select(max(deadline - time.monotonic(), 0.0)):
                    raise OdradekError(
                        f"broker {self.node_id} was not ready within {timeout_s:g} s{self._last_words()}"
                    )
                read = os.read(process.stdout.fileno(), 4096)
                if not read:
                    code = process.wait()
                    raise OdradekError(f"broker {self.node_id} ended with code {code}{self._last_words()}")
                output += read
        self.address = output.decode().splitlines()[0].removeprefix(_READY)
        return self.address

    def kill(self) -> None:
        """kill -9: nothing is tidied. It has ended when this returns."""
        self._signal(signal.SIGKILL)
        self._wait(_STOP_SECONDS)
        self._keep_port()

    def pause(self) -> None:
        """Sends SIGSTOP: the process lives on for the system, and is silent for everyone else."""
        self._signal(signal.SIGSTOP)
        self.was_paused = True

    def resume(self) -> None:
        self._signal(signal.SIGCONT)
        self.was_paused = False

    def stop(self, timeout_s: float = _STOP_SECONDS) -> int | None:
        """End it cleanly and return its exit code; killed when that takes longer than `timeout_s`. Idempotent."""
        try:
            if self.is_alive:
                if self.was_paused:
                    self.resume()
                self._signal(signal.SIGTERM)
                self._wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
        except OdradekError:
            pass  # it ended by itself just now
        self._let_go()
        self._keep_port()
        return None if self.process is None else self.process.returncode

    def release_port(self) -> None:
        """Gives up the broker's port: it is not started again, or may get another port. Idempotent."""
        if self._free_port is not None:
            self._free_port()
            self._free_port = None

    def _keep_port(self) -> None:
        """Reserves the broker's port while it is down: its next process listens there, and the system gives it to no other."""
        if not self.address or self._free_port is not None or sys.platform != "linux":
            return  # elsewhere the broker itself could not listen, too
        descriptor = _bound(*parse_host_port(self.address))
        if descriptor is not None:
            self._free_port = weakref.finalize(self, os.close, descriptor)

    def _signal(self, number: int) -> None:
        if self.process is None or self.process.poll() is not None:
            raise OdradekError(f"broker {self.node_id} does not run")
        self.process.send_signal(number)

    def _wait(self, timeout_s: float) -> None:
        assert self.process is not None
        self.process.wait(timeout_s)

    def _let_go(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()

    def _last_words(self) -> str:
        log_file = self.terms.log_file
        if log_file is None or not log_file.exists():
            return ""
        lines = log_file.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
        return ":\n  " + "\n  ".join(lines) if lines else ""


def _bound(host: str, port: int) -> int | None:
    """Returns a socket that is bound and does not listen: connections are refused as before, and a process that asks for this
    very port may listen there, with SO_REUSEADDR. None where that cannot be: in another network
    namespace, or when someone was faster.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            holder.bind((host, port))
        except OSError:
            return None
        return holder.detach()


class Fleet:
    """Several brokers of one cluster, with the registry that they share. A context manager that ends them all."""

    def __init__(self, brokers: Sequence[BrokerProcess]) -> None:
        self.brokers = list(brokers)

    @classmethod
    def plan(
        cls,
        count: int,
        directory: Path,
        *,
        first_id: int = 1,
        settings: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        log_files: bool = True,
        apart: bool = False,
    ) -> Self:
        """Plans `count` brokers below `directory`, whose ids and ports follow one another. Port 0, the
        default, means any port. `apart`: Ctrl-C on our terminal does not reach them."""
        shared = {"odradek.registry.dir": str(directory / "registry"), **(settings or {})}
        if shared.get("zookeeper.connect"):
            del shared["odradek.registry.dir"]
        shared.setdefault(LISTENERS, _ANY_PORT)
        brokers = []
        for number, own in enumerate(for_brokers(shared, count)):
            node_id = first_id + number
            home = directory / f"broker-{node_id}"
            terms = BrokerTerms(
                node_id=node_id,
                directory=home,
                listen=first_address({**shared, **own}),
                settings={**shared, **own},
                log_file=directory / f"broker-{node_id}.log" if log_files else None,
                options=options,
                apart=apart,
            )
            brokers.append(BrokerProcess(terms))
        return cls(brokers)

    def start(self) -> Self:
        """Start them side by side, and wait until all are ready; on an error none is left running."""
        try:
            for broker in self.brokers:
                broker.start()
            for broker in self.brokers:
                broker.wait_until_ready()
        except BaseException:
            self.stop()
            raise
        return self

    @property
    def bootstrap(self) -> str:
        """The clients' `bootstrap.servers`."""
        return ",".join(broker.address for broker in self.brokers)

    def broker(self, node_id: int) -> BrokerProcess:
        for broker in self.brokers:
            if broker.node_id == node_id:
                return broker
        known = ", ".join(str(broker.node_id) for broker in self.brokers)
        raise OdradekError(f"there is no broker {node_id}; there are {known}")

    def stop(self) -> None:
        """End them all cleanly. Idempotent. One that cannot be ended keeps no other from ending."""
        with ExitStack() as ending:
            for broker in self.brokers:
                ending.callback(broker.release_port)
                ending.callback(broker.stop)
            for broker in self.brokers:  # first of all: the others may wait for them
                if broker.is_paused:
                    with suppress(OdradekError):
                        broker.resume()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
