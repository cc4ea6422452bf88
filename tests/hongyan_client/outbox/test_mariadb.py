"""Defaults and rights of MySQL and MariaDB."""

from collections.abc import Iterator

import pymysql
import pytest
from sqlalchemy import exc as sa
from sqlalchemy.engine import make_url

from hongyan_client.outbox.engine import outbox_engine
from hongyan_client.outbox.errors import OutboxForbidden, OutboxRefused, outbox_errors
from hongyan_client.outbox.store import FailedRow
from tests.hongyan_client.outbox.places import LEASE_MS, OutboxPlace, opened

CONVERT = """
ALTER TABLE hongyan_outbox_alerts CONVERT TO CHARACTER SET utf8mb4,
    MODIFY message_id VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL, ENGINE = InnoDB"""
"""docs/outbox.md has it."""


@pytest.fixture
def latin_place(mariadb_database: str) -> Iterator[OutboxPlace]:
    engine = outbox_engine(mariadb_database)
    name = make_url(mariadb_database).database
    with engine.begin() as connection:
        connection.exec_driver_sql(f"ALTER DATABASE {name} CHARACTER SET latin1")
    engine.dispose()
    with opened(mariadb_database) as place:
        yield place


def parked(place: OutboxPlace, error: str) -> str:
    """Adds a row and parks it."""
    message_id = place.add()
    batch = place.store.claim_due("a", LEASE_MS, 10)
    place.store.mark(batch.token, (), [FailedRow(row, error, False, None) for row in batch.rows])
    return message_id


def test_every_table_holds_chinese_text_whatever_the_databases_default_is(
    latin_place: OutboxPlace,
) -> None:
    message_id = parked(latin_place, "主题不存在 😀")
    assert latin_place.row(message_id).last_error == "主题不存在 😀"
    assert latin_place.operator.release(message_id, "lin", "主题已经创建") == 1
    latin_place.rows.beat("接力", "主机", 7, "running", 0)
    with latin_place.engine.begin() as connection:
        engines = (
            "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema = database()"
        )
        assert connection.exec_driver_sql(engines).scalars().all() == ["InnoDB"]


def test_a_table_of_an_older_version_parks_with_escapes_and_can_be_converted(
    latin_place: OutboxPlace,
) -> None:
    with latin_place.engine.begin() as connection:
        connection.exec_driver_sql(
            "ALTER TABLE hongyan_outbox_alerts CONVERT TO CHARACTER SET latin1"
        )
    message_id = parked(latin_place, "错误")
    assert latin_place.states() == {message_id: "PARKED"}
    assert latin_place.row(message_id).last_error == r"\u9519\u8bef"
    with pytest.raises(OutboxRefused, match=r"docs/outbox\.md"):
        latin_place.operator.release(message_id, "lin", "主题已经创建")
    with latin_place.engine.begin() as connection:
        connection.exec_driver_sql(CONVERT)
    assert latin_place.operator.release(message_id, "lin", "主题已经创建") == 1


@pytest.mark.parametrize("number", [1044, 1142, 1143])
def test_a_right_on_schema_table_or_column_is_a_persons_to_grant(number: int) -> None:
    cause = pymysql.err.OperationalError(number, "command denied")
    with pytest.raises(OutboxForbidden), outbox_errors("hongyan_outbox"):
        raise sa.OperationalError("SELECT", {}, cause)
