"""Templates applied while workers run: every worker sends with the new version within seconds, and says in
its heartbeat which one it follows."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from litestar.testing import TestClient

from admin.access import Role
from admin.app import create_app
from admin.parts import open_parts
from backends.settings import ConsoleSettings, DatabaseSettings, Settings
from idempotency.sql_ledger import open_ledger
from message.envelope import Template
from tests.admin.conftest import PASSWORD, SECRET, Browser
from tests.harness import LANE, Fleet, await_, notifications
from tests.integration.test_lane_pause import hongyan

MakeFleet = Callable[..., Fleet]
WITHIN_S = 5.0
TEMPLATES = """[templates."login"]
channel = "webhook"
text = "{word} {{{{ code }}}}"
[templates."login".variables]
code = "int"
"""


class Receiver:
    """A provider that keeps the text of everything that it is given."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        """By receiver."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}/send"

    def serve(self) -> None:
        self._server.serve_forever()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        texts = self.texts

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body: dict[str, Any] = json.loads(
                    self.rfile.read(int(self.headers["content-length"]))
                )
                texts[body["receiver"]] = body["content"]["text"]
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    one = Receiver()
    thread = threading.Thread(target=one.serve)
    thread.start()
    yield one
    one.close()
    thread.join()


@contextmanager
def policy_admin(fleet: Fleet, endpoint: str) -> Iterator[Browser]:
    """A console on the fleet's ledger, and somebody there who may change templates."""
    settings = Settings(
        database=DatabaseSettings(url=fleet.ground.database_url),
        console=ConsoleSettings(secret=SECRET),
        accounts={"demo": {"provider": "webhook", "endpoint": endpoint}},
    )
    with ExitStack() as stack:
        parts = open_parts(settings, stack)
        with parts.databases.primary.begin() as connection:
            number = parts.people.users.add(connection, "lin", by="test", password=PASSWORD)
            parts.people.users.set_roles(connection, number, {Role.POLICY_ADMIN: ("*",)})
        browser = Browser(stack.enter_context(TestClient(create_app(parts))))
        browser.sign_in("lin")
        yield browser


def followed(fleet: Fleet) -> set[int | None]:
    """Numbers of the templates that the live processes follow, by their heartbeats."""
    with closing(
        open_ledger(Settings(database=DatabaseSettings(url=fleet.ground.database_url)))
    ) as ledger:
        live = [one for one in ledger.fleet_status().processes() if not one.lost]
    return {one.snapshot.templates if one.snapshot is not None else None for one in live}


def await_followed(fleet: Fleet, number: int) -> None:
    begun = time.monotonic()
    await_(lambda: followed(fleet) == {number}, what=f"workers and recovery follow t{number}")
    assert time.monotonic() - begun <= WITHIN_S


def sent_texts(fleet: Fleet, receiver: Receiver, code: int) -> set[str]:
    """Sends twenty notifications of the template; returns the texts that arrived."""
    items = notifications(20, content=None, template=Template("login", {"code": code}))
    fleet.send(items)
    wanted = {one.receivers[0] for one in items}
    await_(lambda: wanted <= receiver.texts.keys(), what="all arrive")
    return {receiver.texts[one] for one in wanted}


def test_a_version_applied_by_command_and_one_by_the_console_reach_running_workers(
    fleet: MakeFleet, receiver: Receiver
) -> None:
    account = {"provider": "webhook", "endpoint": receiver.endpoint}
    recovery = {"lanes": [LANE], "lease_s": 3.0, "health_address": "127.0.0.1:0"}
    one = fleet(
        accounts={"demo": account},
        policy={LANE: {"threads": 4}},
        settings={"recovery": recovery},
    )
    one.recovery().wait_ready()
    one.start(2)
    file = one.folder / "texts.toml"
    file.write_text(TEMPLATES.format(word="Code"))
    hongyan(one, "templates", "apply", str(file), "--author", "ci")
    await_followed(one, 1)
    assert sent_texts(one, receiver, 4711) == {"Code 4711"}
    with policy_admin(one, receiver.endpoint) as lin:
        fields = {"text": TEMPLATES.format(word="Your code is"), "base": "1", "reason": "clearer"}
        assert lin.post("/templates/apply", **fields).status_code == 303
        await_followed(one, 2)
    assert sent_texts(one, receiver, 4712) == {"Your code is 4712"}
    one.await_settled()
    assert one.books.states(one.keys)["SENT"] == 40
