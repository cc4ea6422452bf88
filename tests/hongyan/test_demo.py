"""The demo is judged by the provider's own book, and a book that is not right ends it with 1."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

import pytest

from deploy.local.layout import REPOSITORY
from hongyan.commands import demo
from hongyan.demo.environment import DemoEnvironment
from hongyan.demo.progress import ProgressReader
from hongyan.demo.proof import AcknowledgedSends, Addressee, ProviderProof, prove, quantile
from hongyan.demo.scenario import PER_SECOND, rate_of
from message.envelope import Notification
from simulator import LedgerRecord, read_ledger
from tests.hongyan.conftest import Run

SMALL = 400


def notification(number: int, *receivers: str) -> Notification:
    return Notification(
        id=f"m{number}", channel="webhook", kind="notice", receivers=list(receivers), created_at=1
    )


def record(seq: int, number: int, receiver: str, *, accepted: bool = True) -> LedgerRecord:
    return LedgerRecord(
        seq=seq,
        at_ms=5,
        key="a key that the judge does not read",
        path="/demo",
        id=f"m{number}",
        receiver=receiver,
        attempt=1,
        digest="",
        accepted=accepted,
        answer="200",
    )


@pytest.fixture
def sends() -> AcknowledgedSends:
    made = AcknowledgedSends()
    made.add(notification(1, "ann", "ben", "ann"))
    made.add(notification(2, "ann"))
    return made


WHOLE = [record(1, 1, "ann"), record(2, 1, "ben"), record(3, 2, "ann")]


def test_each_receiver_exactly_once_is_a_proof(sends: AcknowledgedSends) -> None:
    refused = record(4, 1, "ann", accepted=False)
    proof = prove(sends, [refused, *WHOLE])
    assert (proof.expected, proof.once, proof.holds) == (3, 3, True)


@pytest.mark.parametrize(
    ("book", "found"),
    [
        ([], "3 lost"),
        (WHOLE[1:], "1 lost, such as ann of m1"),
        ([*WHOLE, record(9, 1, "ben")], "1 doubled, such as ben of m1"),
        ([*WHOLE, record(9, 7, "eve")], "1 sent without having been asked for, such as eve of m7"),
        ([WHOLE[0], WHOLE[0], WHOLE[2]], "1 lost, 1 doubled"),
    ],
)
def test_any_other_book_is_none(
    sends: AcknowledgedSends, book: list[LedgerRecord], found: str
) -> None:
    proof = prove(sends, book)
    assert not proof.holds
    assert found in proof.sentence()


def test_nothing_sent_proves_nothing() -> None:
    proof = prove(AcknowledgedSends(), [])
    assert not proof.holds
    assert proof.sentence() == "nothing was sent, so nothing is proven"


def test_a_proof_lists_what_it_found(sends: AcknowledgedSends) -> None:
    proof = prove(sends, WHOLE[1:])
    assert proof == ProviderProof(3, 2, [Addressee("m1", "ann")], [], [])


@pytest.mark.parametrize(("values", "wanted"), [([], 0.0), ([7], 7.0), (range(101), 50.0)])
def test_quantiles_of_few_values(values: Iterable[int], wanted: float) -> None:
    assert quantile(list(values), 50) == wanted


def tampered(environment: DemoEnvironment) -> list[LedgerRecord]:
    """The provider loses its first acceptance and has its last one twice: in the file, as it would be."""
    book = environment.provider.ledger
    lines = book.read_bytes().splitlines(keepends=True)
    book.write_bytes(b"".join([*lines[1:], lines[-1]]))
    return list(read_ledger(book))


@pytest.mark.timeout(180)
def test_a_provider_that_lost_one_and_doubled_one_ends_the_demo_with_1(
    hongyan: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All the rest of this run is a demo as it is: the kill leaves doubts, and each other receiver is there
    exactly once."""
    reads = iter(range(9))
    own = DemoEnvironment.book

    def book(self: DemoEnvironment) -> Iterable[LedgerRecord]:
        return tampered(self) if next(reads) == 2 else own(self)  # the third is the judge's

    monkeypatch.setattr(DemoEnvironment, "book", book)
    few = folder / "few.jsonl"
    with demo.examples().open("rb") as lines:
        few.write_bytes(b"".join(islice(lines, SMALL)))
    ended = hongyan("demo", "--file", str(few), "--json")
    assert ended.code == 1, ended.err
    assert "1 lost, 1 doubled" in ended.err
    summary = json.loads(ended.out)
    assert (summary["lost"], summary["doubled"], summary["unasked"]) == (1, 1, 0)
    assert summary["sent_once"] == summary["expected"] - 2
    assert summary["in_doubt"] >= summary["in_doubt_arrived"] >= 1
    assert summary["ledger"] == {"SENT": summary["expected"]}
    assert summary["takeover_s"] > 0
    assert "worker-1 (killed)" in ended.err, "both workers are shown, and the live rate"


def test_lines_of_other_channels_are_refused(hongyan: Run, folder: Path) -> None:
    (folder / "sms.jsonl").write_text(
        '{"channel":"sms","kind":"notice","receivers":["+8613800000001"],"content":{}}\n'
    )
    from hongyan.demo.scenario import DemoFailed, _receivers_in

    with pytest.raises(DemoFailed, match=r"sms\.notice: the demo sends webhook\.\* alone"):
        _receivers_in(folder / "sms.jsonl")
    (folder / "bad.jsonl").write_text("{}\n")
    with pytest.raises(DemoFailed, match=r"line 1: .*; mend the file"):
        _receivers_in(folder / "bad.jsonl")
    (folder / "none.jsonl").write_text("\n")
    with pytest.raises(DemoFailed, match="has no notification"):
        _receivers_in(folder / "none.jsonl")


def test_a_kept_folder_must_be_new(hongyan: Run, folder: Path) -> None:
    (folder / "kept").mkdir()
    (folder / "kept" / "ledger.db").touch()
    ended = hongyan("demo", "--keep", "kept")
    assert (ended.code, ended.err) == (2, "--keep kept: is not empty; give a new folder")


def test_the_wheel_brings_the_notifications_of_the_demo() -> None:
    wheel = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    placed = wheel["targets"]["wheel"]["force-include"]
    assert placed["examples/notifications.jsonl"] == "hongyan/demo/notifications.jsonl"
    assert demo.examples() == REPOSITORY / "examples" / "notifications.jsonl"
    beside = Path(demo.__file__).parents[1] / "demo" / "notifications.jsonl"
    assert beside == REPOSITORY / placed["examples/notifications.jsonl"]


def test_the_rate_is_that_of_the_last_second() -> None:
    reader = ProgressReader.__new__(ProgressReader)
    from collections import deque

    reader._seen = deque([(0.0, 0)])
    assert reader._rate(0.5, 50) == 100
    assert reader._rate(1.0, 100) == 100
    assert reader._rate(1.5, 100) == 50
    assert reader._rate(3.0, 100) == 0


@pytest.mark.parametrize(
    ("java", "pyspark", "why"),
    [
        (False, True, "they need Java 17 or newer."),
        (True, False, "they need pip install 'hongyan[spark]'."),
        (
            True,
            True,
            "Java's Kafka client cannot read the embedded Kafka. With a real one type make up",
        ),
    ],
)
def test_the_demo_says_why_it_shows_no_spark_job(
    java: bool, pyspark: bool, why: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hongyan.demo import spark_note

    if java:
        (folder / "bin").mkdir()
        (folder / "bin" / "java").touch()
    monkeypatch.setattr(spark_note, "find_spec", lambda _name: object() if pyspark else None)
    assert why in spark_note.spark_note(str(folder))
    monkeypatch.setenv("PATH", str(folder / "bin"))
    assert "Java 17" in spark_note.spark_note(""), "java in PATH must be a program"


@pytest.mark.parametrize(
    ("notifications", "per_second"),
    [(1, 1), (60, 30), (999, 500), (1_000, PER_SECOND), (10**6, PER_SECOND)],
)
def test_a_small_file_is_sent_over_two_seconds(notifications: int, per_second: int) -> None:
    assert rate_of(notifications) == per_second
