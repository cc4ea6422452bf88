"""The business's database: orders, refused orders, the outbox and the barriers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects.postgresql import insert

from hongyan_client.lookback.barrier import barrier_table
from hongyan_client.outbox import outbox_tables
from hongyan_client.outbox.engine import outbox_engine
from tests.chaos.producing.extent import Deal

METADATA = sa.MetaData()
ORDERS = sa.Table(
    "orders",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    sa.Column("way", sa.String(16), nullable=False),
    sa.Column("message_id", sa.String(64)),  # null: the gateway has not answered yet
)
REFUSED = sa.Table("refused", METADATA, sa.Column("number", sa.Integer, primary_key=True))
BARRIERS = barrier_table(METADATA)
OUTBOX = outbox_tables(METADATA)
_SHOW = "SELECT state, count(*) FROM {} GROUP BY state"


class Shop:
    """One connection pool on it. Any thread."""

    def __init__(self, url: str, pool: int = 4) -> None:
        self.engine = outbox_engine(url, pool_size=pool)

    def create(self) -> None:
        """Makes the tables."""
        METADATA.create_all(self.engine)

    def close(self) -> None:
        """Gives the connections back."""
        self.engine.dispose()

    def done(self) -> set[int]:
        """Returns the numbers that are at their end."""
        told = sa.select(ORDERS.c.number).where(ORDERS.c.message_id.is_not(None))
        with self.engine.begin() as connection:
            refused = connection.execute(sa.select(REFUSED.c.number)).scalars()
            return {*refused, *connection.execute(told).scalars()}

    def count(self) -> int:
        """Returns how many numbers are at their end."""
        told = sa.select(sa.func.count(ORDERS.c.message_id)).scalar_subquery()
        refused = sa.select(sa.func.count()).select_from(REFUSED).scalar_subquery()
        with self.engine.begin() as connection:
            return int(connection.execute(sa.select(told + refused)).scalar_one())

    def orders(self) -> dict[int, str | None]:
        """Returns the message's id of each committed order."""
        with self.engine.begin() as connection:
            rows = connection.execute(sa.select(ORDERS.c.number, ORDERS.c.message_id))
            return {row.number: row.message_id for row in rows}

    def refused(self) -> set[int]:
        """Returns the numbers that were rolled back."""
        with self.engine.begin() as connection:
            return set(connection.execute(sa.select(REFUSED.c.number)).scalars())

    def outbox_states(self) -> dict[str, int]:
        """Returns how many rows of the outbox are in each state."""
        return self._counts(OUTBOX.rows.name)

    def refuse(self, number: int) -> None:
        """Notes a transaction that was rolled back."""
        with self.engine.begin() as connection:
            connection.execute(insert(REFUSED).values(number=number).on_conflict_do_nothing())

    def note_answer(self, number: int, message_id: str) -> None:
        """Notes the gateway's answer."""
        known = sa.update(ORDERS).where(ORDERS.c.number == number)
        with self.engine.begin() as connection:
            connection.execute(known.values(message_id=message_id))

    def has(self, number: int) -> bool:
        """Whether the order was committed."""
        with self.engine.begin() as connection:
            found = connection.execute(sa.select(ORDERS.c.number).where(ORDERS.c.number == number))
            return found.first() is not None

    def _counts(self, table: str) -> dict[str, int]:
        with self.engine.begin() as connection:
            rows: Any = connection.execute(sa.text(_SHOW.format(table)))
            return {state: int(count) for state, count in rows}


def order_row(deal: Deal, message_id: str | None) -> sa.Insert:
    """Returns the statement that writes an order."""
    return sa.insert(ORDERS).values(number=deal.number, way=deal.way.value, message_id=message_id)


@contextmanager
def opened(url: str, pool: int = 4) -> Iterator[Shop]:
    """Yields the shop of a database."""
    shop = Shop(url, pool)
    try:
        yield shop
    finally:
        shop.close()
