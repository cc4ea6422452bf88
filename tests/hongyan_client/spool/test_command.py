"""`hongyan-spool`: looks in, and drains by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from backends.kafka.embedded import EmbeddedKafka
from hongyan_client.spool.command import main
from hongyan_client.spool.store import KeptRecord
from tests.hongyan_client.spool.making import NEVER, Bench, FakeKafka, envelope, record

NUMBER = "+8613800000001"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spool of a process that has ended: one envelope and two records of another form."""
    bench = Bench(tmp_path / "spool", FakeKafka())
    some = [envelope("order-1", NUMBER, bench.now), record(1, "b"), record(2, "b")]
    kept = [KeptRecord(one, NEVER) for one in some]
    bench.store.keep(kept, bench.folder.marker, bench.now)
    bench.close()
    return tmp_path / "spool"


def called(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code = main([*arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_status_has_the_figures(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, status = called(capsys, "status", str(folder))
    assert code == 0
    assert (status["waiting"], status["parked"], status["kept"]) == (3, 0, 3)
    assert status["oldest_age_s"] >= 0
    assert (status["damaged_files"], status["problems"]) == ([], [])
    assert main(["status", str(folder)]) == 0
    assert "waiting" in capsys.readouterr().out


def test_status_exits_1_for_what_needs_a_person(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "damaged-1.db").write_bytes(b"")
    bench = Bench(folder, FakeKafka())
    with bench.store._keeper.transaction() as connection:
        connection.execute("UPDATE records SET parked = 1 WHERE id = 2")
    bench.close()
    code, status = called(capsys, "status", str(folder))
    assert code == 1
    assert len(status["problems"]) == 2


def test_list_masks_receivers_and_shows_no_content(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, rows = called(capsys, "list", str(folder))
    assert code == 0
    assert rows[0]["message_id"] == "order-1"
    assert rows[0]["receivers"] == "+86138***0001"
    assert rows[1]["receivers"] == ""
    assert main(["list", str(folder), "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) == 1
    for secret in (NUMBER, NUMBER[3:], "4711"):
        assert secret not in shown
        assert secret not in json.dumps(rows)


def test_list_shows_those_that_expired(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(folder, FakeKafka())
    bench.store.expire(bench.store.take_fence(), NEVER)
    bench.close()
    _, rows = called(capsys, "list", str(folder), "--ended")
    assert [one["reason"] for one in rows] == ["expired"] * 3
    assert rows[-1]["message_id"] in ("order-1", "")


def test_drain_publishes_what_waits(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text("# for this cluster\nlinger.ms = 1\n")
    with EmbeddedKafka() as cluster:
        arguments = ("--bootstrap", cluster.bootstrap, "--properties", str(properties))
        code, result = called(capsys, "drain", str(folder), *arguments)
    assert (code, result) == (0, {"published": 3, "left": 0, "parked": 0, "error": ""})


def test_drain_waits_for_the_process_that_drains(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = Bench(folder, FakeKafka())
    assert bench.folder.drain_lock.try_exclusive()
    arguments = ["drain", str(folder), "--bootstrap", "127.0.0.1:9", "--timeout", "0.2"]
    assert main(arguments) == 1
    assert "another process drains" in capsys.readouterr().err
    bench.close()


def test_drain_says_what_kafka_said(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--bootstrap", "127.0.0.1:9", "--timeout", "1"]
    assert main(["drain", str(folder), *arguments]) == 1
    said = capsys.readouterr()
    assert "left 3" in said.out
    assert "did not acknowledge" in said.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["status", "nowhere"], "there is no spool"),
        (["drain", "{folder}", "--bootstrap", "x:1", "--properties", "nowhere"], "cannot be read"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], words: str
) -> None:
    assert main([one.format(folder=folder) for one in arguments]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert len(said.splitlines()) == 1


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["drain", "--help"])
    assert ended.value.code == 0
    assert "Examples:" in capsys.readouterr().out
