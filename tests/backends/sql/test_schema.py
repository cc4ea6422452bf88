"""Programs and schemas of neighbouring versions: which run on which, and which migration may say so."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import make_url

from backends.settings import DatabaseSettings, Settings
from backends.sql import migrations, schema
from backends.sql.database import Database
from idempotency.ledger import LedgerOutdated
from idempotency.sql_ledger import open_ledger, upgrade

SCRIPTS = sorted((Path(str(migrations.__file__)).parent / "versions").glob("*.py"))
_NUMBER = re.compile(r'^revision = "(\d{4})"$', re.MULTILINE)
_TAKES_AWAY = re.compile(
    r"drop_(table|column)|alter_column|rename_table"
    r"|\bDROP (TABLE|COLUMN)|\bRENAME\b|\bALTER COLUMN\b",
    re.IGNORECASE,
)


def settings(url: str) -> Settings:
    return Settings(database=DatabaseSettings(url=url))


def marked(url: str, version: str, oldest: str) -> None:
    """Makes the database one of another version."""
    database = Database(make_url(url), pool_size=1)
    with database.begin() as connection:
        connection.exec_driver_sql(
            f"UPDATE hongyan_schema SET version_num = '{version}', oldest_program = '{oldest}'"
        )
    database.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, sqlite_database: str, ledger_database: str) -> str:
    """The URL of an upgraded ledger."""
    found = sqlite_database if request.param == "sqlite" else ledger_database
    upgrade(settings(found))
    return found


def test_a_program_runs_on_a_newer_schema_that_only_added(url: str) -> None:
    marked(url, "9999", schema.head())
    open_ledger(settings(url)).close()
    assert upgrade(settings(url)) == ("9999", "9999")


def test_a_program_too_old_for_the_schema_says_so(url: str) -> None:
    marked(url, "9999", "9998")
    with pytest.raises(LedgerOutdated, match=r"too old for it: start one of version 9998 or newer"):
        open_ledger(settings(url))


def test_a_newer_schema_that_names_no_program_is_refused(url: str) -> None:
    marked(url, "9999", "")
    with pytest.raises(LedgerOutdated, match="9999 or newer"):
        open_ledger(settings(url))


def test_an_upgrade_names_the_oldest_program(url: str) -> None:
    database = Database(make_url(url), pool_size=1)
    try:
        assert schema.oldest_program(database) == schema.OLDEST_PROGRAM
    finally:
        database.close()


def numbers() -> dict[str, str]:
    """Returns the text of each migration by its number."""
    texts = [path.read_text("utf-8") for path in SCRIPTS]
    return {found[1]: text for text in texts if (found := _NUMBER.search(text))}


def test_the_head_is_the_one_that_alembic_finds() -> None:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS[0].parents[1]))
    assert ScriptDirectory.from_config(config).get_heads() == [schema.head()]


def test_a_program_that_opens_a_ledger_loads_no_alembic(sqlite_database: str) -> None:
    upgrade(settings(sqlite_database))
    code = f"""if True:
        import sys
        from backends.settings import DatabaseSettings, Settings
        from idempotency.sql_ledger import open_ledger
        open_ledger(Settings(database=DatabaseSettings(url={sqlite_database!r}))).close()
        assert not [name for name in sys.modules if name.partition(".")[0] == "alembic"]
        """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_migration_that_takes_something_away_is_named_as_the_oldest() -> None:
    later = {number: text for number, text in numbers().items() if number > schema.OLDEST_PROGRAM}
    taking = [number for number, text in later.items() if _TAKES_AWAY.search(text)]
    assert not taking, f"set OLDEST_PROGRAM in backends/sql/schema.py to {taking[-1]}"
    assert schema.OLDEST_PROGRAM in numbers()


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE deliveries DROP COLUMN account",
        "op.drop_table('receipts')",
        "ALTER TABLE deliveries RENAME COLUMN owner TO worker",
        "ALTER TABLE deliveries ALTER COLUMN account SET NOT NULL",
    ],
)
def test_the_search_finds_a_statement_that_takes_something_away(statement: str) -> None:
    assert _TAKES_AWAY.search(statement)
