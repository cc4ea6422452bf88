"""hongyan dead: from the topic to the terminal, and back to the lane."""

from pathlib import Path

import pytest

from backends import kafka
from backends.kafka_reading import read_topic
from backends.settings import KafkaSettings
from tests.hongyan.conftest import Run

LANE_TOPIC = "{}.dispatch.sms.notice"


@pytest.fixture
def prefix(kafka: str, folder: Path, hongyan: Run, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"d{folder.name.replace('_', '')[-20:]}".replace("-", "")
    monkeypatch.setenv("HONGYAN_KAFKA__TOPIC_PREFIX", name)
    monkeypatch.setenv("HONGYAN_DATABASE__URL", f"sqlite:///{folder / 'ledger.db'}")
    assert hongyan("db", "upgrade").code == 0
    assert hongyan("topics", "apply", "--lanes", "sms.notice").code == 0
    return name


def bury(bootstrap: str, prefix: str, offset: int, reason: str, value: bytes) -> str:
    """A dead letter as a worker writes it; its origin."""
    origin = f"{LANE_TOPIC.format(prefix)}/0/{offset}"
    producer = kafka_producer(bootstrap)
    headers: list[tuple[str, str | bytes | None]] = [
        ("theirs", b"kept"),
        ("hongyan-dead-reason", reason.encode()),
        ("hongyan-dead-detail", b"$.ttl_ms: what was wrong"),
        ("hongyan-dead-origin", origin.encode()),
    ]
    producer.produce(f"{prefix}.dead", key=b"k", value=value, headers=headers)
    assert producer.flush(10) == 0
    return origin


def kafka_producer(bootstrap: str) -> "kafka.Producer":
    return kafka.producer(KafkaSettings(bootstrap=bootstrap))


def test_letters_are_listed_shown_and_replayed_once(hongyan: Run, kafka: str, prefix: str) -> None:
    body = (
        b'{"id":"m-1","channel":"sms","receivers":["+8613800000001"],"content":{"text":"secret"}}'
    )
    one = bury(kafka, prefix, 1, "bad_ttl", body)
    two = bury(kafka, prefix, 2, "not_json", b"call +8613800000002")
    listed = hongyan("dead", "list", "--json").json
    assert {(x["origin"], x["reason"], x["lane"]) for x in listed} == {
        (one, "bad_ttl", "sms.notice"),
        (two, "not_json", "sms.notice"),
    }
    assert [x["origin"] for x in hongyan("dead", "list", "--reason", "bad_ttl", "--json").json] == [
        one
    ]
    for said in (
        hongyan("dead", "show", one),
        hongyan("dead", "show", two),
        hongyan("dead", "list"),
    ):
        assert said.code == 0
        assert "secret" not in said.out
        assert "13800000001" not in said.out
        assert "13800000002" not in said.out
    dry = hongyan("dead", "replay", one)
    assert (dry.code, "would_replay" in dry.out, "dry run" in dry.err) == (0, True, True)
    done = hongyan("dead", "replay", one, "--yes", "--json")
    assert [x["fate"] for x in done.json] == ["replayed"]
    again = hongyan("dead", "replay", "--lane", "sms.notice", "--yes", "--json")
    assert {x["origin"]: x["fate"] for x in again.json} == {one: "replayed_before", two: "replayed"}
    settings = KafkaSettings(bootstrap=kafka)
    arrived = {m.value(): m.headers() for m in read_topic(settings, LANE_TOPIC.format(prefix))}
    assert arrived[body] == [("theirs", b"kept"), ("hongyan-replay-of", one.encode())]
    assert len(arrived) == 2


def test_what_is_not_there_is_said(hongyan: Run, prefix: str) -> None:
    assert hongyan("dead", "list").out == "no dead letters\n"
    shown = hongyan("dead", "show", "t/0/1")
    assert (shown.code, "there is no dead letter from 't/0/1'" in shown.err) == (1, True)
    assert hongyan("dead", "replay", "t/0/1", "--yes").code == 1
    assert hongyan("dead", "replay").code == 2
    assert hongyan("dead", "list", "--since", "soon").code == 2
    assert hongyan("dead", "list", "--lane", "pigeon.post").code == 2
