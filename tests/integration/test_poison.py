"""What cannot be sent at all, and the topic it goes to: scenarios 14 to 16."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256

import msgspec

from message.envelope import encode
from message.vocabulary import dead_letter_topic
from tests.harness import LANE, Fleet, Sent, await_, notification, notifications, now_ms
from tests.harness.raw_headers import produce_named

MakeFleet = Callable[..., Fleet]


def test_poison_is_kept_whole_with_its_reason_and_holds_up_nobody(fleet: MakeFleet) -> None:
    one = fleet()
    worker = one.worker().wait_ready()
    poison = _every_poison()
    headers = [("hongyan-id", b"x"), ("theirs", b"kept")]
    sent = [one.send([value], key=b"\xffk", headers=headers)[0] for value, _ in poison]
    one.send(notifications(20))
    one.await_settled()
    one.await_committed()
    assert one.verify().states == {"SENT": 20}
    letters = {letter.origin: letter for letter in one.dead_letters()}
    for record, (value, reason) in zip(sent, poison, strict=True):
        letter = letters[_origin(record)]
        assert (letter.reason, letter.key, letter.value) == (reason, b"\xffk", value)
        assert letter.headers["theirs"] == "kept"
        assert "nobody" not in letter.headers["hongyan-dead-detail"], "the value is not repeated"
    assert len(letters) == len(poison)
    worker.await_metric("dead_letters", len(poison))


def test_a_record_without_key_or_headers_is_sent_or_kept_like_any_other(fleet: MakeFleet) -> None:
    one = fleet()
    one.worker().wait_ready()
    keyless = notification()
    one.send([None, encode(keyless)], key=None)
    await_(lambda: keyless.id in one.order(), what="the good one is sent")
    one.await_committed()
    (letter,) = one.dead_letters()
    assert (letter.key, letter.value, letter.reason) == (None, None, "not_json")


def test_offset_holds_while_dead_letters_are_refused_and_others_flow(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    dead = dead_letter_topic(one.wire.prefix)
    one.wire.configure_topic(dead, max_message_bytes="1")
    worker = one.worker().wait_ready()
    one.send([*notifications(3), b"poison", *notifications(50)])
    one.await_settled()
    place = one.sent[0].place
    await_(lambda: one.committed()[place].covers(53), what="what flowed past is committed")
    assert one.committed()[place].offset == 3, "the poison holds"
    assert worker.events("dead_letters_held")
    one.wire.configure_topic(dead, max_message_bytes="100000")
    one.await_committed()
    (letter,) = one.dead_letters()
    assert (letter.origin, letter.value) == (f"{place.topic}/0/3", b"poison"), "whole after all"
    assert worker.events("dead_letters_flow_again")
    one.verify()


def test_what_the_dead_letters_topic_does_not_take_becomes_a_stub_and_its_offset_passes(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    one.wire.configure_topic(dead_letter_topic(one.wire.prefix), max_message_bytes="2000")
    large = secrets.token_bytes(300_000)
    headers = [("hongyan-id", b"m-1"), ("big", secrets.token_bytes(20_000))]
    (in_value,) = one.send([large])
    (in_header,) = one.send([b"short"], headers=headers)
    (small,) = one.send([b"small"])
    one.send(notifications(5))
    worker = one.worker().wait_ready()
    one.await_settled()
    one.await_committed()
    letters = {letter.origin: letter for letter in one.dead_letters()}
    assert set(letters) == {_origin(in_value), _origin(in_header), _origin(small)}
    facts = msgspec.json.decode(letters[_origin(in_value)].headers["hongyan-dead-stub"])
    assert facts["value_bytes"] == len(large)
    assert facts["sha256"] == sha256(large).hexdigest()
    assert letters[_origin(in_value)].value == large[:512]
    assert letters[_origin(in_header)].headers["hongyan-id"] == "m-1"
    assert letters[_origin(in_header)].value == b"short"
    assert (letters[_origin(small)].value, letters[_origin(small)].key) == (b"small", b"k")
    assert len(worker.events("dead_letter_is_a_stub")) == 2
    one.verify()


def test_a_batch_that_inflates_beyond_all_bounds_is_passed_over_with_a_letter(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    worker = one.worker().wait_ready()
    one.send(notifications(3))
    origin = one.wire.inflating(one.topics[0], 200 << 20)
    one.send(notifications(5))
    one.await_settled()
    one.await_committed()
    (letter,) = one.dead_letters()
    assert (letter.origin, letter.reason) == (f"{one.topics[0]}/0/{origin}", "unreadable_batch")
    assert (letter.key, letter.value) == (None, None)
    assert [e["offset"] for e in worker.events("unreadable_batch")] == [origin]
    one.verify()


def test_a_record_whose_header_is_not_utf_8_is_kept_without_headers_and_holds_up_nobody(
    fleet: MakeFleet,
) -> None:
    one = fleet(partitions=1)
    worker = one.worker().wait_ready()
    odd = encode(notification())
    name = "größe".encode("latin-1")
    produce_named(one.ground.bootstrap, one.topics[0], name, odd, key=b"theirs")
    one.send(notifications(5))
    one.await_settled()
    one.await_committed()
    (letter,) = one.dead_letters()
    assert (letter.origin, letter.reason) == (f"{one.topics[0]}/0/0", "unreadable_headers")
    assert (letter.key, letter.value) == (b"theirs", odd)
    assert all(name.startswith("hongyan-dead-") for name in letter.headers)
    assert worker.stop() == 0
    one.verify()


def test_offset_holds_while_there_is_no_dead_letter_topic(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    dead = dead_letter_topic(one.wire.prefix)
    one.wire.delete_topic(dead)
    worker = one.worker().wait_ready()
    one.send([b"poison", *notifications(50)])
    one.await_settled()
    await_(lambda: worker.events("dead_letters_held"), timeout=20, what="it says so soon")
    assert one.committed()[one.sent[0].place].offset <= 0
    one.wire.make_topic(dead, 1)
    one.await_committed()
    assert {letter.origin for letter in one.dead_letters()} == {f"{one.topics[0]}/0/0"}
    one.verify()


def test_poison_that_nobody_could_keep_is_read_again_by_the_successor(fleet: MakeFleet) -> None:
    one = fleet(partitions=1)
    dead = dead_letter_topic(one.wire.prefix)
    one.wire.configure_topic(dead, max_message_bytes="1")
    worker = one.worker().wait_ready()
    one.send([b"poison", *notifications(5)])
    await_(lambda: worker.events("dead_letters_held"), what="it holds")
    assert worker.stop() == 0, "held poison keeps nobody from ending"
    one.wire.configure_topic(dead, max_message_bytes="100000")
    one.worker().wait_ready()
    one.await_committed()
    assert [letter.origin for letter in one.dead_letters()] == [f"{one.topics[0]}/0/0"]
    one.verify()


def test_a_provider_that_refuses_everything_floods_no_dead_letters(fleet: MakeFleet) -> None:
    one = fleet(policy={LANE: {"breaker": {"min_calls": 100_000}}})  # so that all are called
    one.worker().wait_ready()
    one.slow(0, errors={"400": 0.5, "500": 0.5})
    one.send(notifications(200))
    one.await_settled()
    one.await_committed()
    verdict = one.verify()
    assert verdict.states["REJECTED"] + verdict.states["UNKNOWN"] == 200
    assert one.dead_letters() == []


def _every_poison() -> list[tuple[bytes | None, str]]:
    """(value, reason) for every kind that the design names."""
    fields = msgspec.json.decode(encode(notification()))

    def changed(**changes: object) -> bytes:
        return msgspec.json.encode({**fields, **changes})

    return [
        (None, "not_json"),
        (b"", "not_json"),
        (b"{", "not_json"),
        (b"\xff\xfe", "not_json"),
        (b"[1]", "wrong_type"),
        (changed(receivers="one"), "wrong_type"),
        (changed(v=9), "unknown_version"),
        (changed(id="x" * 65), "bad_id"),
        (changed(id="\u96c1"), "bad_id"),
        (changed(channel="pigeon"), "unknown_channel"),
        (changed(kind="rumour"), "unknown_kind"),
        (changed(channel="sms"), "wrong_topic"),
        (changed(kind="marketing"), "wrong_topic"),
        (changed(content=None), "no_content"),
        (changed(ttl_ms=0), "bad_ttl"),
        (changed(receivers=[]), "bad_receivers"),
        (changed(receivers=[f"r{n}" for n in range(1_001)]), "bad_receivers"),
        (changed(created_at=now_ms() + 700_000), "created_ahead"),
        (changed(account="nobody"), "unknown_account"),
        (changed(content={"text": "x" * (1 << 20)}), "too_large"),
    ]


def _origin(record: Sent) -> str:
    return f"{record.place.topic}/{record.place.partition}/{record.offset}"
