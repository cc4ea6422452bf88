"""A running `hongyan console` under measurement: its people, pages, bytes and watchers."""

from __future__ import annotations

import asyncio
import http.client
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
import psycopg

from admin.access import Role
from admin.pages.deliveries.search_line import is_personal
from admin.parts import open_parts
from admin.web.cookies import SESSION
from admin.web.sealing import sealed
from backends.metrics.console_families import TOOK
from backends.settings import ConsoleSettings, DatabaseSettings, Settings
from benchmarks.console_sql import HASH_KEY
from benchmarks.processes import Program
from idempotency.search.language import parse

PERSON: Final = "console-bench"
_PASSWORD: Final = "the benchmark's own, long enough"
_SECRET: Final = "the console benchmark's own secret"
_REDIRECTS: Final = (http.client.FOUND, http.client.SEE_OTHER, http.client.TEMPORARY_REDIRECT)
_STARTED_S: Final = 30.0
_CONNECT_S: Final = 60.0
_ASSET: Final = re.compile(r'(?:src|href)="(/static/[^"]+)"')
_QUERIES: Final = (
    "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
)
_SETTLED_S: Final = 2.0
"""Time after which the server's counters show what was done."""


class ConsoleProgram:
    """`hongyan console` and a person who is signed in."""

    def __init__(self, program: Program, address: str, person: int, sessions: list[str]) -> None:
        self.program = program
        self.host, self.port = (
            urlsplit(f"//{address}").hostname or "",
            urlsplit(f"//{address}").port,
        )
        self._person = person
        self.sessions = sessions
        self.cookie = self._sign_in(f"http://{address}")
        self._local = threading.local()

    def get(self, path: str) -> bytes:
        """Returns the page as it is sent, gzipped; follows a redirect within the console. Each thread has a
        connection. Raises RuntimeError."""
        headers = {"cookie": self.cookie, "accept-encoding": "gzip"}
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
            self._local.connection = connection
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
        except http.client.RemoteDisconnected:  # the server closed it while it was idle
            connection.close()
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
        body: bytes = answer.read()
        if answer.status in _REDIRECTS:
            return self.get(answer.headers["location"])
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {answer.status}")
        return body

    def search(self, line: str) -> bytes:
        """Returns the first page of a search. The address is the one to which the box leads: it holds a
        line that may name a person sealed, and a page with the line itself would not be searched for."""
        personal = is_personal(line, parse(line, time.time_ns() // 1_000_000))
        held = f"s={sealed(_SECRET, self._person, line)}" if personal else f"q={quote(line)}"
        return self.get(f"/search?{held}")

    def answered(self, route: str, within_s: float) -> tuple[float, float]:
        """Returns how many answers of a route the console timed, and how many of them took at most so long,
        by its own clock. `within_s` is a bound of `backends.metrics.buckets`."""
        labels = f'route="{route}"'
        every = sum(self.program.values(f"{TOOK.name}_count", labels))
        return every, sum(self.program.values(f"{TOOK.name}_bucket", f'le="{within_s:g}",{labels}'))

    def cold_bytes(self, path: str) -> int:
        """Returns the bytes of a page and of all its files, as they are sent."""
        with httpx.Client(base_url=f"http://{self.host}:{self.port}", trust_env=False) as client:
            client.headers["cookie"] = self.cookie
            text = client.get(path).raise_for_status().text
        files = sorted(set(_ASSET.findall(text.replace("&amp;", "&"))))
        return len(self.get(path)) + sum(len(self.get(file)) for file in files)

    def _sign_in(self, url: str) -> str:
        with httpx.Client(base_url=url, trust_env=False, timeout=30) as client:
            found = re.search(r'name="csrf" value="(\w+)"', client.get("/login").text)
            token = found[1] if found else ""
            fields = {"csrf": token, "name": PERSON, "password": _PASSWORD, "next": "/"}
            answer = client.post("/login", data=fields)
            if answer.status_code != http.client.SEE_OTHER:
                raise RuntimeError(f"the sign-in was refused: {answer.status_code}")
            return f"{SESSION}={client.cookies[SESSION]}"


@contextmanager
def console_on(url: str, environment: Mapping[str, str], folder: Path) -> Iterator[ConsoleProgram]:
    """Yields the console on this database, with sessions for watchers to open."""
    own = dict(environment) | {
        "HONGYAN_DATABASE__URL": url,
        "HONGYAN_OUTCOMES__HASH_KEY": HASH_KEY,
        "HONGYAN_CONSOLE__SECRET": _SECRET,
        "HONGYAN_CONSOLE__HEALTH_ADDRESS": "127.0.0.1:0",
    }
    person, sessions = _people(url)
    log = folder / "console.log"
    with Program(["console", "--listen", "127.0.0.1:0"], own, log) as program:
        yield ConsoleProgram(program, _address(log), person, sessions)


async def watch(
    console: ConsoleProgram, watchers: int, seconds: float, url: str
) -> tuple[int, int]:
    """Opens so many live streams of the overview, each with a session of its own. Returns the database's
    transactions and the events that came in so many seconds."""
    heard = [0] * watchers
    opened = asyncio.gather(
        *(_stream(console, console.sessions[number], heard, number) for number in range(watchers))
    )
    try:
        deadline = time.monotonic() + _CONNECT_S
        while not all(heard):
            if time.monotonic() > deadline or opened.done():
                raise RuntimeError(f"{heard.count(0)} of {watchers} watchers heard nothing")
            await asyncio.sleep(0.1)
        await asyncio.sleep(_SETTLED_S)
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            before, events = _count(connection), sum(heard)
            await asyncio.sleep(seconds)
            return _count(connection) - before - 1, sum(heard) - events
    finally:
        opened.cancel()
        with suppress(asyncio.CancelledError):
            await opened


async def _stream(console: ConsoleProgram, session: str, heard: list[int], number: int) -> None:
    reader, writer = await asyncio.open_connection(console.host, console.port, limit=1 << 20)
    try:
        writer.write(
            f"GET /live/overview HTTP/1.1\r\nhost: {console.host}:{console.port}\r\n"
            f"cookie: {SESSION}={session}\r\naccept: text/event-stream\r\n\r\n".encode()
        )
        while line := await reader.readline():
            if b"event: overview" in line:
                heard[number] += 1
    finally:
        writer.close()


def _count(connection: psycopg.Connection[Any]) -> int:
    connection.execute("SELECT pg_stat_clear_snapshot()")
    row = connection.execute(_QUERIES.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _people(url: str) -> tuple[int, list[str]]:
    """Makes the person, once, and 200 sessions. Returns the person's number and the sessions' tokens."""
    settings = Settings(database=DatabaseSettings(url=url), console=ConsoleSettings(secret=_SECRET))
    with ExitStack() as stack:
        parts = open_parts(settings, stack)
        with parts.databases.primary.begin() as connection:
            found = parts.people.users.named(connection, PERSON)
            number = found.id if found else 0
            if not found:
                users = parts.people.users
                number = users.add(connection, PERSON, by="benchmark", password=_PASSWORD)
            parts.people.users.set_roles(connection, number, dict.fromkeys(Role, ("*",)))
            begin = parts.people.sessions.begin
            return number, [begin(connection, number, "127.0.0.1") for _ in range(200)]


def _address(log: Path) -> str:
    deadline = time.monotonic() + _STARTED_S
    while time.monotonic() < deadline:
        if found := re.search(r'"address":\s*"([0-9.]+:\d+)"', log.read_text()):
            return found[1]
        time.sleep(0.05)
    raise RuntimeError(f"the console did not start: {log.read_text()[-2_000:]}")
