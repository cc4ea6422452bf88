"""A console in a process's thread, and the system's Chromium. Run apart from other tests: Playwright's
synchronous interface keeps an event loop running in its process."""

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from admin.access import Role
from admin.parts import ConsoleParts, open_parts
from admin.process import run_console
from admin.web.cookies import SESSION
from backends.settings import ConsoleSettings, DatabaseSettings, KafkaSettings, Settings
from deploy.local.errors import MissingPrograms
from deploy.local.system import headless_chromium, need
from tests.harness.databases import upgraded

PASSWORD = "correct horse battery"
AXE = Path(__file__).parent / "vendor" / "axe.min.js"
_RUN_AXE = (
    "axe.run(document, {resultTypes: ['violations'], selectors: false, preload: false})"
    ".then(found => found.violations)"
)
_SESSIONS: dict[str, list[Any]] = {}
"""Address of a console → the cookie of its newest session."""


@pytest.fixture(scope="session")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of the console's database."""
    return f"sqlite:///{tmp_path_factory.mktemp('console') / 'hongyan.db'}"


@pytest.fixture(scope="session")
def console_settings(database: str) -> Settings:
    """The settings of the console: a ledger of its own, and no Kafka."""
    return settings_at(database)


@pytest.fixture(scope="session")
def console(database: str) -> Iterator[str]:
    """The address of a console with the user `lin`, who has every role."""
    with served_console(database) as address:
        yield address


def settings_at(url: str) -> Settings:
    """Returns the settings of a console on a ledger, which is made if it is not there."""
    settings = Settings(
        database=DatabaseSettings(url=url),
        console=ConsoleSettings(health_address="127.0.0.1:0"),
        kafka=KafkaSettings(bootstrap="127.0.0.1:9"),
    )
    upgraded(settings)
    return settings


@contextmanager
def served_console(
    url: str, seed: Callable[[ConsoleParts], None] = lambda _parts: None
) -> Iterator[str]:
    """Serves a console on a fresh ledger at `url`, which `seed` fills. Yields its address."""
    settings = settings_at(url)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with ExitStack() as stack:
        parts = open_parts(settings, stack)
        with parts.databases.primary.begin() as connection:
            number = parts.people.users.add(connection, "lin", by="test", password=PASSWORD)
            parts.people.users.set_roles(connection, number, dict.fromkeys(Role, ("*",)))
        seed(parts)
    stop = threading.Event()
    thread = threading.Thread(target=run_console, args=(settings, stop, f"127.0.0.1:{port}"))
    thread.start()
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        thread.join(20)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    try:
        need(["chromium-headless-shell", "fonts-noto-cjk"], print)
    except MissingPrograms as missing:
        if os.environ.get("HONGYAN_REQUIRE_STACK") == "1":
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=headless_chromium(), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@cache
def _axe() -> str:
    return AXE.read_text()


class Watched:
    """A page, and everything that it complained of."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.address = address
        self.complaints: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("requestfailed", self._failed)
        page.on("response", self._answered)

    def sign_in(self, name: str = "lin", password: str = PASSWORD) -> None:
        self.page.goto(f"{self.address}/login")
        self.page.fill("#name", name)
        self.page.fill("#password", password)
        self.page.press("#password", "Enter")
        self.page.wait_for_selector("header.top")

    def open(self, path: str = "/") -> None:
        """Opens a page as `lin`, who signs in where the console does not know the session of before."""
        self.page.context.add_cookies(_SESSIONS.get(self.address, []))
        self.page.goto(self.address + path)
        if urlsplit(self.page.url).path == "/login":
            self.sign_in()
            cookies = self.page.context.cookies()
            _SESSIONS[self.address] = [one for one in cookies if one["name"] == SESSION]
            self.page.goto(self.address + path)
        self.page.wait_for_selector("header.top")

    def findings(self) -> list[str]:
        """What axe-core finds that is serious or worse."""
        self.page.evaluate(_axe())  # by the debugger: the page's policy lets no foreign script in
        found: Any = self.page.evaluate(_RUN_AXE)
        serious = [one for one in found if one["impact"] in ("serious", "critical")]
        return [f"{one['id']}: {one['nodes'][0]['html'][:200]}" for one in serious]

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _failed(self, request: Any) -> None:
        left = request.failure == "net::ERR_ABORTED"  # by the browser itself: the page was left
        if "/live/" not in request.url and not left:
            self.complaints.append(f"{request.url}: {request.failure}")

    def _answered(self, response: Any) -> None:
        if response.status >= 400:
            self.complaints.append(f"{response.url}: {response.status}")


@pytest.fixture
def open_page(console: str, chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Opens a page of its own; `options` are those of a browser context, such as its viewport."""
    with ExitStack() as stack:

        def open_one(**options: Any) -> Watched:
            context = chromium.new_context(**options)
            stack.callback(context.close)
            return Watched(context.new_page(), console)

        yield open_one
