"""Idempotent requests in both databases."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from uuid import UUID

import pytest

from backends.settings import Settings
from backends.sql.database import Database, database_url
from producer.gateway.batch_progress import AcceptedItem, BatchProgress
from producer.gateway.request_store import (
    KEEP_MS,
    LEASE_MS,
    Answered,
    ClaimedRequest,
    InProgress,
    OtherBody,
    RequestStore,
    derived_id,
)

NOW = 1_790_000_000_000


class Clocked:
    """A store whose clock is set by hand."""

    def __init__(self, settings: Settings) -> None:
        self.now = NOW
        self.database = Database(database_url(settings.database.url))
        self.store = RequestStore(self.database, lambda _connection: self.now)

    def begin(self, digest: str = "d", own_id: str | None = "") -> ClaimedRequest:
        found = self.store.begin("key", "name", digest, own_id)
        assert isinstance(found, ClaimedRequest)
        return found


@pytest.fixture
def clocked(settings: Settings) -> Iterator[Clocked]:
    clocked = Clocked(settings)
    yield clocked
    clocked.database.close()


def test_of_many_threads_one_claims(clocked: Clocked) -> None:
    together = Barrier(8)

    def begin(_number: int) -> object:
        together.wait()
        return clocked.store.begin("key", "name", "d")

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(begin, range(8)))
    assert sum(isinstance(one, ClaimedRequest) for one in found) == 1
    assert sum(isinstance(one, InProgress) for one in found) == 7


def test_a_killed_request_is_taken_over_after_its_lease_with_the_same_ids(clocked: Clocked) -> None:
    first = clocked.begin()
    clocked.now += LEASE_MS - 1
    assert isinstance(clocked.store.begin("key", "name", "d"), InProgress)
    clocked.now += 1
    second = clocked.begin()
    assert (second.made_at, second.message_id()) == (first.made_at, first.message_id())
    assert not second.first
    assert not clocked.store.finish(first, 202, "late")
    assert clocked.store.finish(second, 202, "first answer")
    assert clocked.store.begin("key", "name", "d") == Answered(202, "first answer")
    assert clocked.store.sent_by("key", second.message_id())
    assert not clocked.store.sent_by("another", second.message_id())


@pytest.mark.parametrize("end", ["answered", "to be repeated", "killed"])
def test_what_a_batch_sent_is_known_and_nothing_else(clocked: Clocked, end: str) -> None:
    store, claimed = clocked.store, clocked.begin(own_id=None)
    store.note_ids(claimed, ["mine-2", "mine-1"])
    sent = [claimed.message_id(0), "mine-2", claimed.message_id(3), "mine-1"]
    if end == "answered":
        assert store.finish(claimed, 207, "first answer")
    elif end == "to be repeated":
        store.release(claimed, BatchProgress())
    assert [store.sent_by("key", one) for one in sent] == [True] * 4
    assert [store.sent_by("another", one) for one in sent] == [False] * 4
    strange = ("mine", claimed.message_id(0)[:12], claimed.message_id(0)[:-1] + "x", "")
    assert not any(store.sent_by("key", one) for one in strange)
    expected = {"answered": Answered, "to be repeated": ClaimedRequest, "killed": InProgress}
    assert isinstance(store.begin("key", "name", "d"), expected[end])
    clocked.now += KEEP_MS
    while store.purge():
        pass
    assert not any(store.sent_by("key", one) for one in sent)


@pytest.mark.parametrize("own_id", ["", "mine"])
def test_the_id_of_a_single_notification_is_known_from_the_beginning(
    clocked: Clocked, own_id: str
) -> None:
    claimed = clocked.begin(own_id=own_id)
    sent = own_id or claimed.message_id()
    assert clocked.store.sent_by("key", sent)
    assert not clocked.store.sent_by("another", sent)
    clocked.store.release(claimed)
    clocked.begin(own_id=own_id)
    assert clocked.store.sent_by("key", sent)
    clocked.now += KEEP_MS
    later = clocked.begin("another body", own_id="other")
    assert later.first
    assert not clocked.store.sent_by("key", sent)
    clocked.store.forget(later)
    assert not clocked.store.sent_by("key", "other")


def test_a_try_that_fails_forgets_nothing_of_what_an_earlier_one_sent(clocked: Clocked) -> None:
    first = clocked.begin(own_id=None)
    accepted = {1: AcceptedItem("mine", "sms.notice")}
    clocked.store.release(first, BatchProgress(accepted, frozenset({2})))
    clocked.now += 1
    second = clocked.begin(own_id=None)
    assert (second.first, second.progress) == (False, BatchProgress(accepted, frozenset({2})))
    clocked.store.release(second)
    third = clocked.begin(own_id=None)
    assert third.progress == BatchProgress(accepted, None)
    clocked.now += LEASE_MS
    fourth = clocked.begin(own_id=None)
    assert fourth.progress == BatchProgress(accepted, None)
    assert clocked.store.sent_by("key", first.message_id(0))


def test_after_a_kill_any_item_may_have_been_sent(clocked: Clocked) -> None:
    assert not clocked.begin(own_id=None).progress.may_be_in_kafka(0)
    clocked.now += LEASE_MS
    assert clocked.begin(own_id=None).progress.may_be_in_kafka(0)


def test_a_request_that_was_taken_over_records_no_ids(clocked: Clocked) -> None:
    first = clocked.begin(own_id=None)
    clocked.now += LEASE_MS
    clocked.begin(own_id=None)
    clocked.store.note_ids(first, ["mine-1", "mine-2"])
    assert not clocked.store.finish(first, 202, "late")
    assert not clocked.store.sent_by("key", "mine-1")


def test_two_batches_may_have_sent_the_same_id(clocked: Clocked) -> None:
    for name in ("one", "two"):
        claimed = clocked.store.begin("key", name, "d", None)
        assert isinstance(claimed, ClaimedRequest)
        clocked.store.note_ids(claimed, ["mine-1", "mine-2"])
        assert clocked.store.finish(claimed, 202, "")
        clocked.now += KEEP_MS // 2
    while clocked.store.purge():
        pass
    assert clocked.store.sent_by("key", "mine-1"), "kept as long as the later one"


def test_another_body_is_told_before_and_after_the_answer(clocked: Clocked) -> None:
    claimed = clocked.begin()
    assert isinstance(clocked.store.begin("key", "name", "other"), OtherBody)
    clocked.now += LEASE_MS
    assert isinstance(clocked.store.begin("key", "name", "other"), OtherBody)
    clocked.store.finish(claimed, 202, "")
    assert isinstance(clocked.store.begin("key", "name", "other"), OtherBody)


def test_an_expired_key_begins_a_new_notification(clocked: Clocked) -> None:
    first = clocked.begin()
    clocked.store.finish(first, 202, "")
    clocked.now += KEEP_MS
    second = clocked.begin("other")
    assert second.first
    assert second.message_id() != first.message_id()


def test_only_expired_requests_are_purged(clocked: Clocked) -> None:
    clocked.begin()
    clocked.now += KEEP_MS - 1
    assert clocked.store.purge() == 0
    clocked.now += 1
    assert clocked.store.purge() == 1


def test_a_forgotten_request_leaves_nothing(clocked: Clocked) -> None:
    clocked.store.forget(clocked.begin())
    assert clocked.begin("other").first


def test_ids_are_of_their_time_and_their_request() -> None:
    one = UUID(hex=derived_id(NOW, "key", "name", 0))
    assert (one.version, one.variant) == (7, "specified in RFC 4122")
    assert one.int >> 80 == NOW
    others = {derived_id(NOW, key, name, n) for key in "ab" for name in "ab" for n in range(3)}
    assert len(others) == 12
