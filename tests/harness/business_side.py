"""The business's side of gateway and look-back: an API key, and the endpoint that answers checks."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

from backends.sql.database import Database, database_url
from hongyan_client.lookback.check_handler import CheckHandler, Lookup
from idempotency.sql_ledger import clock_of
from producer.gateway.api_keys import terms_of
from producer.gateway.key_store import KeyStore


def new_api_token(url: str, scopes: Sequence[str], *, name: str = "business") -> str:
    """Returns the token of a new API key of this ledger, without a rate that matters."""
    database = Database(database_url(url))
    try:
        store = KeyStore(database, clock_of(database))
        with database.begin() as connection:
            terms = terms_of(list(scopes), [], 1e6, 1_000_000)
            return store.add(connection, name, terms, by="test").token
    finally:
        database.close()


@contextmanager
def check_endpoint(lookups: Mapping[str, Lookup]) -> Iterator[int]:
    """Yields the port of this machine at which a business answers what became of its transactions."""
    handler = CheckHandler(lookups, [])
    with make_server("127.0.0.1", 0, handler.wsgi, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
        return
