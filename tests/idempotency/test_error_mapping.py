"""The ledger tells a database that is away from a slow one, and from one without a free connection."""

from __future__ import annotations

import pytest

from backends.sql.errors import SqlAway, SqlNoSchema, SqlPoolBusy, SqlTimeout
from idempotency.error_mapping import errors
from idempotency.ledger import LedgerError, LedgerOutdated, LedgerUnavailable


@pytest.mark.parametrize(
    ("cause", "error", "sentence"),
    [
        (SqlAway("gone"), LedgerUnavailable, "the ledger's database is away: gone"),
        (SqlTimeout("late"), LedgerUnavailable, "the ledger's database took too long: late"),
        (
            SqlPoolBusy("all in use"),
            LedgerUnavailable,
            "no connection to the ledger's database is free: all in use",
        ),
        (SqlNoSchema("no table"), LedgerOutdated, "run `hongyan db upgrade` (no table)"),
    ],
)
def test_each_error_of_the_database_has_its_sentence(
    cause: Exception, error: type[LedgerError], sentence: str
) -> None:
    with pytest.raises(LedgerError) as raised, errors():
        raise cause
    assert type(raised.value) is error
    assert str(raised.value).endswith(sentence)
    assert raised.value.__cause__ is cause
