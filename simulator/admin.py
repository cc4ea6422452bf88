"""The simulator's admin interface, on loopback alone: `/_control` changes faults, `/_report` reports.

GET  /                                          the page for people
GET  /_report[?summary=1 | ?key=KEY]        GET /_control        POST /_control {"rules":[…]}
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import parse_qs

import msgspec

from simulator.faults import BadFaults
from simulator.options import Control, Rules
from simulator.provider import Provider
from simulator.report import Report
from simulator.servers.http_request import Request, RequestClient
from simulator.servers.report_page import page

_HTML: Final = (("Content-Type", "text/html; charset=utf-8"),)
_control = msgspec.json.Decoder(Control)


class Admin:
    """Serves the admin listener; `refuse` opens and closes the provider's own."""

    def __init__(
        self, provider: Provider, refuse: Callable[[bool, Callable[[], None]], None]
    ) -> None:
        self._provider = provider
        self._refuse = refuse
        self._refusing = False

    def serve(self, connection: RequestClient, request: Request) -> None:
        """Answers one request."""
        path, _, query = request.target.decode("latin-1").partition("?")
        if path == "/" and request.method == "GET":
            report = self._provider.memory.report()
            connection.answer(200, page(report.summary, report.keys), fields=_HTML)
        elif path == "/_report" and request.method == "GET":
            self._report(connection, parse_qs(query))
        elif path == "/_control" and request.method == "GET":
            self._show(connection)
        elif path == "/_control":
            self._change(connection, request.body)
        else:
            connection.answer(404, b'{"error":"/, /_report or /_control"}')

    def _report(self, connection: RequestClient, query: dict[str, list[str]]) -> None:
        memory = self._provider.memory
        answer: Report | Any = memory.report(summary_only="summary" in query)
        if "key" in query:
            answer = memory.keys.get(query["key"][0])
        connection.answer(200 if answer else 404, msgspec.json.encode(answer))

    def _show(self, connection: RequestClient) -> None:
        provider = self._provider
        now = Control(
            rules=provider.rules.faults,
            dedup=provider.dedup,
            refuse_new=self._refusing,
            lists=provider.world.lists,
        )
        connection.answer(200, msgspec.json.encode(now))

    def _change(self, connection: RequestClient, body: bytes) -> None:
        try:
            change = _control.decode(body)
            rules = None if change.rules is msgspec.UNSET else Rules(change.rules)
        except (msgspec.MsgspecError, BadFaults) as exc:
            connection.answer(400, msgspec.json.encode({"error": str(exc)}))
            return
        if rules is not None:
            self._provider.rules = rules
        if change.dedup is not msgspec.UNSET:
            self._provider.dedup = change.dedup
        if change.lists is not msgspec.UNSET:
            self._provider.world.lists = change.lists
        if change.expire_tokens is True:
            self._provider.world.token_generation += 1
        if change.refuse_new is msgspec.UNSET or change.refuse_new is self._refusing:
            self._show(connection)
            return
        self._refusing = change.refuse_new
        self._refuse(self._refusing, lambda: self._show(connection))
