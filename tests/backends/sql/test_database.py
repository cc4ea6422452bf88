import sqlite3
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, event
from sqlalchemy import exc as sa

from backends.sql import database as sql
from backends.sql.database import Database, database_url, masked
from backends.sql.errors import SqlAway, SqlNoDatabase, SqlNoSchema, SqlPoolBusy, SqlTimeout, judged
from backends.sql.fair_pool import FairPool


def arguments(engine: Engine) -> dict[str, Any]:
    """Returns what the engine calls the driver with, which connects to nothing."""
    found: dict[str, Any] = {}

    def connect(_dialect: object, _record: object, _args: object, named: dict[str, Any]) -> None:
        found.update(named)
        raise psycopg.OperationalError

    event.listen(engine, "do_connect", connect)
    with pytest.raises(sa.OperationalError):
        engine.connect()
    found.pop("context", None)  # psycopg's adapters, of SQLAlchemy
    return found


@pytest.mark.parametrize(
    ("url", "driver"),
    [
        ("postgres://u:p@h/d", "postgresql+psycopg"),
        ("postgresql://u:p@h/d", "postgresql+psycopg"),
        ("sqlite:///hongyan.db", "sqlite"),
    ],
)
def test_a_url_gets_our_driver(url: str, driver: str) -> None:
    assert database_url(url).drivername == driver


def test_a_relative_file_stands_in_the_settings_folder(tmp_path: Path) -> None:
    assert database_url("sqlite:///a.db", tmp_path).database == str(tmp_path / "a.db")
    assert database_url("sqlite:////b/a.db", tmp_path).database == "/b/a.db"


@pytest.mark.parametrize("url", ["mysql://u:s3cret@h/d", "s3cret", "sqlite://", "x://h:s3cret/d"])
def test_a_url_that_cannot_be_used_says_what_to_write(url: str) -> None:
    with pytest.raises(ValueError, match="sqlite:///") as caught:
        database_url(url)
    assert "s3cret" not in str(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        "host=127.0.0.1:5&host=127.0.0.2:6&target_session_attrs=read-write",
        "host=127.0.0.1&host=127.0.0.2",
        "host=127.0.0.1,127.0.0.2&port=5,6",
        "connect_timeout=9&application_name=ours&sslmode=disable",
    ],
)
def test_the_options_of_a_url_reach_the_driver_as_sqlalchemy_reads_them(options: str) -> None:
    url = database_url(f"postgresql://u:p@/d?{options}")
    own = url.get_dialect()().create_connect_args(url)[1]
    with closing(Database(url)) as database:
        assert arguments(database.engine) == {**sql._CONNECT, **own}


def test_a_masked_url_shows_no_secret() -> None:
    shown = masked("postgresql://u:s3cret@h:5/d?password=t0p&sslmode=require")
    assert shown == "postgresql://u:***@h:5/d"
    assert masked("s3cret") == "a URL that cannot be read"


def test_a_masked_url_shows_no_end_of_a_password_with_an_at() -> None:
    assert masked("postgresql://u:t0p@s3cret@h:5/d") == "postgresql://u:***@h:5/d"


def test_an_at_in_a_password_is_refused_since_its_end_would_be_the_host() -> None:
    with pytest.raises(ValueError, match="%40") as caught:
        database_url("postgresql://u:t0p@s3cret@h:5/d")
    assert "s3cret" not in str(caught.value)
    assert database_url("postgresql://u:t0p%40s3cret@h:5/d").password == "t0p@s3cret"


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.OperationalError("connection refused"),
        psycopg.InterfaceError("the connection is closed"),
        psycopg.errors.AdminShutdown(),
        psycopg.errors.CannotConnectNow("the database system is starting up"),
        psycopg.errors.CrashShutdown(),
        psycopg.errors.QueryCanceled(),
        psycopg.errors.DeadlockDetected(),
        psycopg.errors.SerializationFailure(),
        psycopg.errors.LockNotAvailable(),
        psycopg.errors.ReadOnlySqlTransaction(),
        psycopg.errors.TooManyConnections(),
        psycopg.errors.DiskFull(),
        psycopg.errors.IdleInTransactionSessionTimeout(),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_what_may_pass_is_away(cause: Exception) -> None:
    assert isinstance(judged(cause), SqlAway)
    assert isinstance(judged(sa.OperationalError("SELECT 1", {}, cause)), SqlAway)


@pytest.mark.parametrize(
    "cause",
    [
        psycopg.errors.UndefinedTable(),
        psycopg.errors.UndefinedColumn(),
        psycopg.errors.UndefinedFunction(),
    ],
    ids=lambda cause: type(cause).__name__,
)
def test_what_is_not_there_is_no_schema(cause: Exception) -> None:
    assert isinstance(judged(cause), SqlNoSchema)


@pytest.mark.parametrize(
    "bug", [psycopg.errors.UniqueViolation(), psycopg.DataError(), KeyError("x")]
)
def test_a_bug_stays_what_it_is(bug: Exception) -> None:
    assert judged(bug) is bug


def test_a_statement_and_its_values_stay_out_of_the_sentence() -> None:
    error = psycopg.OperationalError("server closed the connection\nDETAIL: secret values")
    assert str(judged(error)) == "server closed the connection"


# -- SQLite --


@pytest.fixture
def lite(sqlite_database: str, monkeypatch: pytest.MonkeyPatch) -> Database:
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    return Database(database_url(sqlite_database))


def test_sqlite_is_durable_and_lets_readers_in(lite: Database) -> None:
    with lite.connection() as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert connection.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    lite.close()


def test_a_new_file_that_another_begins_to_write_is_waited_for(tmp_path: Path) -> None:
    """Before it has its write-ahead log, SQLite waits for no such writer."""
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        writer.execute("CREATE TABLE t (a)")
        threading.Timer(0.3, writer.execute, ("COMMIT",)).start()
        database = Database(database_url(f"sqlite:///{path}"))
        with database.connection() as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        database.close()


def test_a_new_file_that_another_holds_for_longer_than_the_limit_is_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    path = tmp_path / "new.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        database = Database(database_url(f"sqlite:///{path}"))
        with pytest.raises(SqlTimeout, match="locked"), database.connection():
            pass
        database.close()


def test_a_file_that_another_writes_for_longer_than_the_limit_is_slow(lite: Database) -> None:
    with lite.begin() as writer:
        writer.exec_driver_sql("CREATE TABLE t (a)")
        with pytest.raises(SqlTimeout, match="locked"), lite.begin():
            pass
    with lite.connection() as connection:
        connection.execute("INSERT INTO t VALUES (1)")
    lite.close()


def test_a_missing_table_is_no_schema(lite: Database) -> None:
    with pytest.raises(SqlNoSchema, match="no such table"), lite.connection() as connection:
        connection.execute("SELECT * FROM nowhere")
    lite.close()


def test_a_file_that_is_no_database_or_a_damaged_one_is_none(tmp_path: Path) -> None:
    (tmp_path / "other.db").write_bytes(b"PK" * 5_000)
    other = Database(database_url("sqlite:///other.db", tmp_path))
    for opened in (other.connection, other.begin, other.reading):
        with pytest.raises(SqlNoDatabase, match="file is not a database"), opened():
            pass
    other.close()
    with sqlite3.connect(tmp_path / "cut.db") as made:
        made.execute("CREATE TABLE t (a)")
        made.executemany("INSERT INTO t VALUES (?)", [("x" * 500,)] * 100)
    made.close()
    content = (tmp_path / "cut.db").read_bytes()
    (tmp_path / "cut.db").write_bytes(content[:8_192] + b"x" * (len(content) - 8_192))
    cut = Database(database_url("sqlite:///cut.db", tmp_path))
    with pytest.raises(SqlNoDatabase, match="malformed"), cut.connection() as connection:
        connection.execute("SELECT a FROM t").fetchall()
    cut.close()


def test_a_syntax_error_is_a_bug(lite: Database) -> None:
    with pytest.raises(sqlite3.OperationalError), lite.connection() as connection:
        connection.execute("SELEKT")
    lite.close()


def test_a_folder_that_is_not_there_is_away(tmp_path: Path) -> None:
    database = Database(database_url(f"sqlite:///{tmp_path}/none/a.db"))
    with pytest.raises(SqlAway, match="unable to open"), database.connection():
        pass


def test_what_failed_halfway_is_undone(lite: Database) -> None:
    with pytest.raises(KeyError):
        _fail_halfway(lite)
    with lite.connection() as connection:
        assert connection.execute("SELECT name FROM sqlite_master").fetchall() == []
    lite.close()


def _fail_halfway(lite: Database) -> None:
    with lite.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE t (a)")
        raise KeyError


# -- the pool --


def test_more_users_than_connections_wait_and_then_give_up(
    sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    database = Database(database_url(sqlite_database), pool_size=1)
    with (
        database.connection(),
        database.connection(),
        pytest.raises(SqlAway, match="in use"),
        database.connection(),
    ):
        pass
    database.close()


def test_a_pool_that_keeps_plans_has_no_connection_that_it_would_close() -> None:
    database = Database(database_url("postgresql://127.0.0.1:9/x"), pool_size=3, keeps_plans=True)
    assert isinstance(database.engine.pool, FairPool)
    assert database.engine.pool.permits.free == 3
    database.close()


def test_after_away_no_older_connection_is_used(lite: Database) -> None:
    """One thread sees the server go; the connections of the others led to it too."""
    with lite.connection() as older:
        failing = threading.Thread(target=_fail, args=(lite,))
        failing.start()
        failing.join(10)
    with lite.connection() as one, lite.connection() as two:
        assert older not in (one, two)
    lite.close()


@pytest.mark.parametrize("limit", ["the pool", "a statement"])
def test_a_limit_that_passed_leaves_the_other_connections(
    limit: str, sqlite_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To connect anew, and to plan anew, costs most just when there is too much to do."""
    monkeypatch.setattr(sql, "BUSY_MS", 50)
    database = Database(database_url(sqlite_database), pool_size=2)
    mine, others = ExitStack(), ExitStack()
    kept = mine.enter_context(database.connection())
    for _ in range(3 if limit == "the pool" else 1):
        others.enter_context(database.connection())
    if limit == "the pool":
        with pytest.raises(SqlPoolBusy), database.connection():
            pass
    else:
        with pytest.raises(SqlTimeout), others:
            raise psycopg.errors.QueryCanceled
    mine.close()
    others.close()
    with database.connection() as one, database.connection() as two:
        assert kept in (one, two)
    database.close()


def test_a_connection_that_cannot_be_made_gives_its_turn_back(tmp_path: Path) -> None:
    database = Database(database_url(f"sqlite:///{tmp_path}/none/a.db"), pool_size=1)
    for _ in range(5):
        with pytest.raises(SqlAway, match="unable to open"), database.connection():
            pass
    database.close()


def test_a_connection_left_in_the_middle_of_something_is_not_used_again(lite: Database) -> None:
    with pytest.raises(KeyError):
        _leave_open(lite)
    with lite.connection() as one, lite.connection() as two:
        assert not one.in_transaction
        two.execute("CREATE TABLE t (a)")
    lite.close()


def _leave_open(database: Database) -> None:
    with database.connection() as connection:
        connection.execute("BEGIN IMMEDIATE")
        raise KeyError


def _fail(database: Database) -> None:
    with pytest.raises(SqlAway), database.connection():
        raise psycopg.OperationalError("server closed the connection unexpectedly")


def test_a_connection_in_use_when_the_pool_closes_is_closed_when_it_comes_back(
    lite: Database,
) -> None:
    with lite.connection() as mine:
        lite.close()
        mine.execute("SELECT 1")
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        mine.execute("SELECT 1")
