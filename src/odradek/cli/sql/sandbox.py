"""`odradek sql --sandbox`: a broker, a SQL server, flights that keep coming, and a first lesson."""

from __future__ import annotations

import json
import os
import random
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from odradek.cli.progress import waiting_line
from odradek.cli.serving.broker_processes import Fleet
from odradek.cli.serving.own_directory import own_directory
from odradek.client import Producer
from odradek.model.errors import OdradekError
from odradek.sql.rest_client import RestClient

_PAUSE_S: Final = 0.2
_START_S: Final = 60.0
_STOP_S: Final = 20.0
_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
AIRPORTS: Final = {
    "JFK": ("New York", "USA"),
    "CDG": ("Paris", "France"),
    "IST": ("Istanbul", "Türkiye"),
    "HND": ("Tokyo", "Japan"),
    "GRU": ("São Paulo", "Brazil"),
    "NBO": ("Nairobi", "Kenya"),
}
_CARRIERS: Final = ("AA", "AF", "TK", "NH", "LA", "KQ")
STATEMENTS: Final = """
CREATE TABLE airports (code STRING PRIMARY KEY, city STRING, country STRING)
    WITH (KAFKA_TOPIC='airports', VALUE_FORMAT='JSON', PARTITIONS=1);
CREATE STREAM flights (origin STRING KEY, flight STRING, destination STRING, delay_minutes INT, seats INT)
    WITH (KAFKA_TOPIC='flights', VALUE_FORMAT='JSON', PARTITIONS=1);
"""
AIRPORT_ROWS: Final = "".join(
    f"INSERT INTO airports VALUES ('{code}', '{city}', '{country}');"
    for code, (city, country) in AIRPORTS.items()
)

LESSON: Final = {
    "en": """\
There is a stream FLIGHTS, to which five departures a second are added, and a table AIRPORTS.

1. Look at the stream. Rows come until you press Ctrl-C.
     SELECT * FROM flights EMIT CHANGES;
2. Only those that are late:
     SELECT flight, delay_minutes FROM flights WHERE delay_minutes > 60 EMIT CHANGES LIMIT 5;
3. Ask the table. It answers, and ends.
     SELECT city FROM airports WHERE code = 'IST';
4. Join both, and count in windows. Java starts now: the first rows need some seconds.
     SELECT a.city, COUNT(*) AS flights, MAX(f.delay_minutes) AS latest FROM flights f
       JOIN airports a ON f.origin = a.code WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY a.city EMIT CHANGES;
5. Keep it: a table that is always up to date, and that you can query at any time.
     CREATE TABLE by_origin AS SELECT origin, COUNT(*) AS flights FROM flights GROUP BY origin;
     SELECT * FROM by_origin;

SHOW STREAMS; DESCRIBE flights; and `help` tell more. All of it goes away with `exit`.
""",
    "ru": """\
Есть поток FLIGHTS, в который добавляется пять вылетов в секунду, и таблица AIRPORTS.

1. Посмотрите на поток. Строки приходят, пока вы не нажмёте Ctrl-C.
     SELECT * FROM flights EMIT CHANGES;
2. Только опоздавшие:
     SELECT flight, delay_minutes FROM flights WHERE delay_minutes > 60 EMIT CHANGES LIMIT 5;
3. Спросите таблицу. Она ответит, и запрос закончится.
     SELECT city FROM airports WHERE code = 'IST';
4. Соедините их и считайте по окнам. Сейчас запустится Java: первые строки придут через несколько секунд.
     SELECT a.city, COUNT(*) AS flights, MAX(f.delay_minutes) AS latest FROM flights f
       JOIN airports a ON f.origin = a.code WINDOW TUMBLING (SIZE 10 SECONDS) GROUP BY a.city EMIT CHANGES;
5. Сохраните это: таблица обновляется всё время, и спросить её можно в любой момент.
     CREATE TABLE by_origin AS SELECT origin, COUNT(*) AS flights FROM flights GROUP BY origin;
     SELECT * FROM by_origin;

SHOW STREAMS; DESCRIBE flights; и help расскажут больше. Всё исчезнет после exit.
""",
}


@contextmanager
def running() -> Iterator[str]:
    """The URL of the server. Everything ends with the block or with this process, even with SIGKILL, and its data goes."""
    with (
        own_directory("odradek-sql-sandbox-") as directory,
        Fleet.plan(1, directory / "brokers", settings=_SETTINGS, apart=True) as fleet,
        sql_server(fleet.bootstrap, directory) as url,
    ):
        ended = threading.Event()
        flights = threading.Thread(target=_fly, args=[fleet.bootstrap, ended], name="flights", daemon=True)
        try:
            with waiting_line("the stream and the table"):
                RestClient(url=url).execute(STATEMENTS + AIRPORT_ROWS)
            flights.start()
            yield url
        finally:
            ended.set()
            if flights.is_alive():
                flights.join(_STOP_S)


@contextmanager
def sql_server(servers: str, directory: Path) -> Iterator[str]:
    """Yields the URL of a SQL server, a process that ends with the block or with this process. `directory`: for its data."""
    with waiting_line("the SQL server"):
        process, lifeline, url = _server(servers, directory)
    try:
        yield url
    finally:
        os.close(lifeline)
        process.terminate()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _server(servers: str, directory: Path) -> tuple[subprocess.Popen[str], int, str]:
    """Returns the process, our end of its lifeline, and its URL."""
    log = directory / "server.log"
    command = [sys.executable, "-m", "odradek.cli.main", "sql", "serve", "--listen", "127.0.0.1:0"]
    theirs, ours = os.pipe()
    with log.open("w") as errors:
        process = subprocess.Popen(
            [*command, "--bootstrap", servers, "--data", str(directory / "sql"), "--lifeline", str(theirs)],
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            pass_fds=[theirs],
            start_new_session=True,  # Ctrl-C ends a query, and not the server
        )
    os.close(theirs)
    assert process.stdout is not None
    line = _first_line(process.stdout)
    if not line.startswith("ready "):
        os.close(ours)
        process.kill()
        process.wait()
        said = log.read_text().strip().splitlines()
        raise OdradekError(f"the SQL server did not start: {said[-1] if said else 'it said nothing'}")
    return process, ours, line.split()[1]


def _first_line(stream: IO[str]) -> str:
    readable, _, _ = select.select([stream], [], [], _START_S)
    return stream.readline() if readable else ""


def flight(chance: random.Random, number: int) -> tuple[str, dict[str, object]]:
    """Origin, and a flight from there."""
    origin, destination = chance.sample(list(AIRPORTS), 2)
    late = chance.random() < 0.2
    return origin, {
        "FLIGHT": f"{chance.choice(_CARRIERS)}{100 + number % 900}",
        "DESTINATION": destination,
        "DELAY_MINUTES": chance.randint(20, 180) if late else chance.randint(-5, 15),
        "SEATS": chance.choice((120, 180, 300)),
    }


def _fly(servers: str, ended: threading.Event) -> None:
    chance = random.Random(7)
    number = 0
    with Producer(servers) as producer:
        while not ended.is_set():
            origin, departure = flight(chance, number)
            producer.send(
                "flights",
                json.dumps(departure).encode(),
                key=origin.encode(),
                timestamp_ms=int(time.time() * 1000),
            )
            number += 1
            ended.wait(_PAUSE_S)
