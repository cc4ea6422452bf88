"""Tries the rights that marks need, so that a missing one is known before a row is claimed."""

from __future__ import annotations

from typing import Final

from sqlalchemy import text

from hongyan_client.outbox.store import OutboxStore

_CLAIM: Final = "UPDATE {t} SET attempt = attempt WHERE 1 = 0"
_DROP_SENT: Final = "DELETE FROM {t} WHERE 1 = 0"
_ALERT: Final = """
INSERT INTO {t}_alerts (row_id, message_id, topic, text, raised_at) VALUES (0, '', '', '', 0)"""


def try_rights(store: OutboxStore, keep_hours: int) -> None:
    """Changes nothing. Raises OutboxForbidden where the user may not claim, mark or park a row."""
    with store.transaction() as connection:
        connection.execute(text(_CLAIM.format(t=store.name)))
        if not keep_hours:
            connection.execute(text(_DROP_SENT.format(t=store.name)))
        undone = connection.begin_nested()  # only an insert asks for the right on the sequence
        connection.execute(text(_ALERT.format(t=store.name)))
        undone.rollback()
