import psycopg
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from backends.sql.pg_arrays import ByteArray, array, byte_array

texts = st.lists(st.none() | st.text() | st.text(st.sampled_from('"\\{},nulNUL \n\t')), max_size=8)


def sent(database: str, parameter: str | ByteArray, kind: str) -> object:
    with psycopg.connect(database.replace("+psycopg", "")) as connection:
        row = connection.execute(f"SELECT %s::{kind}[]", (parameter,)).fetchone()
    assert row is not None
    return row[0]


def as_stored(text: str | None) -> str | None:
    if text is None:
        return None
    return text.replace("\0", "\ufffd").encode(errors="replace").decode()


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=texts)
def test_text_arrives_as_it_was(database: str, values: list[str | None]) -> None:
    assert sent(database, array(values), "text") == [as_stored(value) for value in values]


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=st.lists(st.none() | st.binary(max_size=50), max_size=5))
def test_bytes_arrive_as_they_were(database: str, values: list[bytes | None]) -> None:
    assert sent(database, byte_array(values), "bytea") == values


def test_integers_arrive_as_they_were(database: str) -> None:
    values = [0, -1, 2**63 - 1, None]
    assert sent(database, array(values), "bigint") == values
