"""The program's side of a rebuild: keys from sealed bodies."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

pytest.importorskip("pyspark", reason="the extra `spark` is not installed")

from backends.settings import DatabaseSettings, Settings
from backends.sql.database import Database, database_url
from hongyan.spark.rebuild import keys_by, run_job
from hongyan.traces.search import TraceSearch
from idempotency.lost.runs import Runs
from idempotency.payload_cipher import PayloadCipher
from idempotency.sql_ledger import clock_of
from message.keys import delivery_key
from spark_jobs.rebuild.job import RebuildFigures
from spark_jobs.rebuild.unkeyed import SealedRecord
from tests.harness.databases import upgraded

NOW = 1_795_000_000_000
KEY = b64encode(bytes(range(32))).decode()
BODY = msgspec.json.encode(
    {
        "v": 1,
        "id": "m1",
        "channel": "sms",
        "kind": "notice",
        "receivers": ["+86 138 0000 0001", "tel:+8613800000002"],
        "content": {"text": "hello"},
        "created_at": 1_790_000_000_000,
    }
)
KEYS = [delivery_key("m1", "sms", receiver) for receiver in ("+8613800000001", "+8613800000002")]


@pytest.mark.parametrize("key", ["", KEY])
def test_a_body_names_its_receivers_as_a_worker_does(key: str) -> None:
    body = PayloadCipher(key).seal(BODY, "m1")
    assert keys_by(key)(SealedRecord("m1", "sms.notice", body)) == KEYS


def test_a_body_that_cannot_be_opened_names_nobody() -> None:
    sealed = PayloadCipher(KEY).seal(BODY, "m1")
    assert keys_by("")(SealedRecord("m1", "sms.notice", sealed)) == ()
    assert keys_by(KEY)(SealedRecord("m2", "sms.notice", sealed)) == ()
    assert keys_by("")(SealedRecord("m1", "sms.notice", b"{")) == ()


def test_a_search_knows_up_to_when_the_rebuild_has_read(
    sqlite_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the time of its commit a search would pass over what came in while it ran."""
    settings = Settings(database=DatabaseSettings(url=sqlite_database), base=str(tmp_path))
    upgraded(settings)
    database = Database(database_url(sqlite_database))
    runs = Runs(database, clock_of(database))
    runs.done(runs.begin("ingest", "me"), NOW, {})
    figures = RebuildFigures({}, False, [], 0, 0, 0, 0, 0, [], [], [])
    monkeypatch.setattr("spark_jobs.rebuild.job.run", lambda *_: figures)
    context = SimpleNamespace(
        settings=settings, database=database, run_id=runs.begin("rebuild", "me"), **_nothing()
    )
    result = run_job(cast(Any, context))
    runs.done(context.run_id, result.watermark, result.figures, result.also)
    monkeypatch.setattr(
        TraceSearch, "_opened", lambda _: SimpleNamespace(written_at=lambda: NOW + 3_600_000)
    )
    assert TraceSearch(settings, database)._until == NOW
    database.close()


def _nothing() -> dict[str, None]:
    return dict.fromkeys(("spark", "warehouse", "config"))
