"""Opens the business's database that `[relay]` names, for the relay, commands and the console."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from sqlalchemy import Engine, MetaData

from backends.settings import Settings, SettingsError
from hongyan_client.outbox.engine import RELAY_WAITS, OutboxWaits, outbox_engine
from hongyan_client.outbox.errors import OutboxTrouble
from hongyan_client.outbox.relay_rows import RelayRows
from hongyan_client.outbox.store import OutboxStore
from hongyan_client.outbox.tables import OutboxTables, outbox_tables


class OutboxUnread(Exception):
    """The outbox cannot be read or changed now; one sentence says why, without a password."""


class OpenedOutbox(NamedTuple):
    """The business's database as a relay or a command opened it."""

    store: OutboxStore
    rows: RelayRows
    tables: OutboxTables
    engine: Engine


def open_outbox(settings: Settings, *, waits: OutboxWaits = RELAY_WAITS) -> OpenedOutbox:
    """Returns the outbox that `[relay]` names. Connects to nothing yet. Raises SettingsError."""
    url = settings.relay.outbox_url
    if not url:
        raise SettingsError(
            "relay.outbox_url is empty: name the business's database, best by"
            " HONGYAN_RELAY__OUTBOX_URL or relay.outbox_url_file"
        )
    tables = _tables(settings.relay.table)
    try:
        engine = outbox_engine(url, waits=waits)
    except ValueError as exc:
        raise SettingsError(f"relay.outbox_url: {exc}") from None
    store = OutboxStore(
        engine,
        settings.relay.table,
        statement_s=waits.statement_s,
        keep_sent=settings.relay.keep_hours > 0,
    )
    return OpenedOutbox(store, RelayRows(store, tables), tables, engine)


def _tables(name: str) -> OutboxTables:
    try:
        return outbox_tables(MetaData(), name)
    except ValueError as exc:
        raise SettingsError(f"relay.table: {exc}") from None


@contextmanager
def outbox_for_a_look(settings: Settings, waits: OutboxWaits) -> Iterator[OpenedOutbox]:
    """Yields the outbox and closes it afterwards. Raises OutboxUnread, for its errors in the body, too."""
    try:
        opened = open_outbox(settings, waits=waits)
    except SettingsError as exc:
        raise OutboxUnread(str(exc)) from exc
    except ModuleNotFoundError as exc:
        raise OutboxUnread(f"{exc.name} is not installed: pip install 'hongyan[mysql]'") from exc
    try:
        yield opened
    except OutboxTrouble as exc:
        raise OutboxUnread(str(exc)) from exc
    finally:
        opened.engine.dispose()
