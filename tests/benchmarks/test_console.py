"""The console's benchmark: its data are found by the product, and an upgrade holds no claim up."""

import random

import pytest
from sqlalchemy import make_url

from backends.sql.database import Database
from benchmarks import console_upgrade
from benchmarks.console_data import Shape, fill
from benchmarks.console_questions import asker, lines, read_samples
from benchmarks.console_sql import HASH_KEY
from idempotency.search.store import Search
from message.receiver_hash import hasher

SHAPE = Shape(rows=3_000, days=8, people=50)


def quiet(_line: str) -> None:
    pass


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_the_product_finds_generated_rows_by_every_kind_of_question(ledger_database: str) -> None:
    filled = fill(ledger_database, SHAPE, quiet)
    assert filled.rows == SHAPE.rows
    with pytest.raises(ValueError, match="fill an empty one"):
        fill(ledger_database, SHAPE, quiet)
    samples = read_samples(ledger_database)
    database = Database(make_url(ledger_database), pool_size=1, keeps_plans=True)
    ask = asker(Search(database, hasher(HASH_KEY)), samples)
    empty = {
        name
        for name, line in lines().items()
        if not any(ask(line(random.Random(seed), samples)) for seed in range(5))
    }
    database.close()
    assert empty <= {"receiver of no row", "copies", "a rare account", "in doubt"}


@pytest.mark.stack
@pytest.mark.usefixtures("services")
def test_no_claim_waits_for_long_while_a_ledger_is_upgraded(ledger_database: str) -> None:
    found = console_upgrade.measure(ledger_database, Shape(rows=20_000, days=5), quiet)
    assert found.failures == 0, found.first_failure
    assert found.claims > 0
    assert found.longest_s <= console_upgrade.BAR_S
