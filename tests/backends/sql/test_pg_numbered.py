"""Statements with the server's own parameters, as long as they may be."""

from __future__ import annotations

import psycopg
import pytest

from backends.sql.pg_numbered import fetched, numbered


def test_each_name_has_one_number_in_the_order_of_the_statement() -> None:
    statement = "SELECT %(b)s::int, %(a_1)s::text WHERE %(b)s::int > 0"
    assert numbered(statement) == ("SELECT $1::int, $2::text WHERE $1::int > 0", ["b", "a_1"])


def test_what_only_looks_like_a_name_stays() -> None:
    assert numbered("SELECT 7 % 4, '%(x)'") == ("SELECT 7 % 4, '%(x)'", [])


def test_a_doubled_percent_sign_is_refused() -> None:
    with pytest.raises(ValueError, match="lone %"):
        numbered("SELECT 'a' LIKE 'a%%'")


def test_the_server_gives_the_first_row_whatever_the_length(database: str) -> None:
    long = "/* " + "x" * 10_000 + " */"
    statement, names = numbered(f"SELECT {long} %(b)s::int - %(a)s::int, %(b)s::text, 7 % 4")
    values = {"a": 2, "b": "9"}
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        for _ in range(2):
            row = fetched(connection, statement, [values[name] for name in names])
            assert row == (7, "9", 3)
        prepared = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert prepared == (1,)
        assert fetched(connection, "SELECT 1 WHERE false", []) is None
