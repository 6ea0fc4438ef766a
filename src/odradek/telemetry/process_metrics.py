"""`process_*`: the names that every Prometheus client library uses for the process itself."""

from __future__ import annotations

import os
import resource
import time
from contextlib import suppress
from typing import Final

from odradek.telemetry.metrics import Family, counter, gauge

_FOLDER: Final = "/proc/self"


def process_families() -> list[Family]:
    """Returns CPU time, memory, descriptors and threads, as far as this system reports them. Any thread may call it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu = counter("process_cpu_seconds", "User and system CPU time of this process.")
    cpu.add(used.ru_utime + used.ru_stime)
    limit = gauge("process_max_fds", "The limit of open file descriptors.")
    limit.add(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    families = [cpu, limit]
    with suppress(OSError):
        descriptors = gauge("process_open_fds", "Open file descriptors.")
        descriptors.add(len(os.listdir(f"{_FOLDER}/fd")))
        families.append(descriptors)
    with suppress(OSError), open(f"{_FOLDER}/io", "rb") as file:
        families += _of_io(file.read())
    with suppress(OSError):
        with open(f"{_FOLDER}/stat", "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        families += _of_stat(words)
    return families


def _of_io(content: bytes) -> list[Family]:
    """Bytes that went to and came from disks, by Kafka's names: what the page cache served is not among them."""
    fields = dict(line.split(b": ") for line in content.splitlines())
    families = []
    for key, verb in ((b"read_bytes", "read"), (b"write_bytes", "write")):
        family = gauge(f"kafka_server_kafkaserver_linux_disk_{verb}_bytes", f"Bytes of disks: {verb}.")
        family.add(int(fields[key]))
        families.append(family)
    return families


def _of_stat(words: list[bytes]) -> list[Family]:
    """Reads the fields after the command's name (proc(5)): threads are number 20, start 22, memory 23 and 24."""
    threads = gauge("process_threads", "Threads of this process.")
    threads.add(int(words[17]))
    start = gauge("process_start_time_seconds", "When this process started, in seconds since 1970.")
    since_boot_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")
    start.add(round(time.clock_gettime(time.CLOCK_REALTIME) - since_boot_s, 2))
    virtual = gauge("process_virtual_memory_bytes", "Virtual memory.")
    virtual.add(int(words[20]))
    resident = gauge("process_resident_memory_bytes", "Resident memory.")
    resident.add(int(words[21]) * os.sysconf("SC_PAGESIZE"))
    return [threads, start, virtual, resident]
