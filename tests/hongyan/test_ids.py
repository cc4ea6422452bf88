"""`hongyan id`: makes ids, and reads them."""

from __future__ import annotations

import re
import uuid

import pytest

from backends.settings import DatabaseSettings, Settings
from message.snowflake import SnowflakeParts, encode_snowflake
from tests.harness.databases import upgraded
from tests.hongyan.conftest import Run

AT_MS = 1_790_000_000_123
NUMBER = encode_snowflake(SnowflakeParts(AT_MS, 5, 7))


def test_new_makes_a_uuid7_without_any_server(hongyan: Run) -> None:
    said = hongyan("id", "new")
    assert said.code == 0
    assert uuid.UUID(said.out.strip()).version == 7


def test_new_makes_many_snowflakes_under_one_leased_number(
    hongyan: Run, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONGYAN_DATABASE__URL", sqlite_database)
    upgraded(Settings(database=DatabaseSettings(url=sqlite_database)))
    first = hongyan("id", "new", "--kind", "snowflake", "--count", "3", "--json").json
    second = hongyan("id", "new", "--kind", "snowflake").out.split()
    ids = first["ids"] + second
    assert first["kind"] == "snowflake"
    read = hongyan("id", "decode", *ids, "--json").json
    assert [one["worker"] for one in read] == [0, 0, 0, 1]
    assert len(set(ids)) == 4


def test_new_says_what_to_do_without_a_ledger(hongyan: Run, sqlite_database: str) -> None:
    said = hongyan("id", "new", "--kind", "snowflake")
    assert said.code == 1
    assert "hongyan db upgrade" in said.err


def test_decode_explains_both_kinds(hongyan: Run) -> None:
    made = uuid.UUID(int=AT_MS << 80 | 7 << 76 | 0b10 << 62 | 42)
    found = hongyan("id", "decode", str(NUMBER), made.hex, str(made), "--json").json
    assert found[0] == {
        "id": str(NUMBER),
        "kind": "snowflake",
        "at": "2026-09-21T14:13:20.123+00:00",
        "at_ms": AT_MS,
        "worker": 5,
        "sequence": 7,
    }
    assert [one["kind"] for one in found[1:]] == ["uuid7"] * 2
    assert {one["at_ms"] for one in found} == {AT_MS}
    shown = hongyan("id", "decode", str(NUMBER)).out
    assert re.search(r"snowflake .*2026-09-21T14:13:20.123.* worker 5 +sequence 7", shown)


def test_decode_gives_no_time_to_a_random_uuid(hongyan: Run) -> None:
    (found,) = hongyan("id", "decode", str(uuid.uuid4()), "--json").json
    assert (found["kind"], found["at"]) == ("uuid4", None)


@pytest.mark.parametrize("text", ["order-1001", "-1", "9223372036854775808", "", "1" * 20, "٣"])
def test_decode_refuses_what_is_no_id(hongyan: Run, text: str) -> None:
    said = hongyan("id", "decode", "--", text)
    assert said.code == 2
    assert "id" in said.err
