"""The verifier of the package `standardwebhooks` judges the posts of outcome events."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from typing import Any

import httpx
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError
from structlog.testing import capture_logs

from backends.settings import OutcomeSettings, SettingsError
from channels.channel import Failure, Phase
from idempotency.outcomes.outbox import OutcomeBatch
from idempotency.outcomes.statements import EndedRow
from message.outcome_event import receiver_hash
from recovery.outcomes.events import POST_EVENTS, ReadyEvent, ready_events
from recovery.outcomes.publisher import LEASE_S
from recovery.outcomes.webhook import OutcomeHook

OLD, NEW, OTHER = ("whsec_" + b64encode(bytes([n]) * 32).decode() for n in (1, 2, 3))
PHONE = "+8613800000001"
HASH_KEY = b"k" * 32


class Business:
    """Answers posts, and keeps them."""

    def __init__(self, *answers: int | Failure) -> None:
        self.posts: list[httpx.Request] = []
        self._answers = list(answers)

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        self.posts.append(request)
        answer = self._answers.pop(0) if self._answers else 200
        return answer if isinstance(answer, Failure) else httpx.Response(answer)

    def events(self, number: int = -1) -> list[dict[str, Any]]:
        return list(json.loads(self.posts[number].read())["events"])


def hook(business: Business, secret: str = OLD) -> OutcomeHook:
    settings = OutcomeSettings(webhook="https://shop.example/outcomes", webhook_secret=secret)
    return OutcomeHook(settings, business)


def events(*sizes: int) -> list[ReadyEvent]:
    """Batches numbered from 1, with so many events each."""
    batches = [
        OutcomeBatch(number, 0, [_end(f"{number:016}{n:016}") for n in range(size)])
        for number, size in enumerate(sizes, 1)
    ]
    return ready_events(batches, HASH_KEY, lambda end: bytes.fromhex(end.receiver).decode())


def _end(key: str) -> EndedRow:
    return EndedRow(
        *(key, "01J", "订单-1", None, "sms.notice", "UNDELIVERED", "MK:0012", "p-1", "main"),
        *(1, 3, 1_790_000_000_000, 1_790_000_001_000, None, PHONE.encode().hex()),
    )


def test_a_post_is_verified_and_read() -> None:
    business = Business()
    assert hook(business).publish(events(2)) == {1}
    post = business.posts[0]
    read = Webhook(OLD).verify(post.read(), dict(post.headers))
    assert read["type"] == "hongyan.outcomes"
    assert PHONE not in post.read().decode()
    first, second = read["events"]
    assert first["event_id"] != second["event_id"]
    assert first["receiver_hash"] == receiver_hash(HASH_KEY, "sms", PHONE)
    assert (first["state"], first["reason"], first["provider_code"]) == (
        *("UNDELIVERED", None),
        "MK:0012",
    )
    assert first["biz_id"] == "订单-1"


def test_while_secrets_are_exchanged_either_verifies() -> None:
    business = Business()
    hook(business, f"{OLD} {NEW}").publish(events(1))
    post = business.posts[0]
    for secret in (OLD, NEW):
        Webhook(secret).verify(post.read(), dict(post.headers))
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(post.read(), dict(post.headers))


def test_a_repeated_post_has_the_same_id_and_the_same_events() -> None:
    business = Business(503, Failure(Phase.NOT_WRITTEN, "connect"), 204)
    posting = hook(business)
    assert [posting.publish(events(1)) for _ in range(3)] == [set(), set(), {1}]
    assert len({post.headers["webhook-id"] for post in business.posts}) == 1
    assert business.events(0) == business.events(1) == business.events(2)


def test_a_batch_counts_as_taken_only_when_all_its_posts_were() -> None:
    business = Business(200, Failure(Phase.NOT_WRITTEN, "connect"))
    assert hook(business).publish(events(1, POST_EVENTS, 1)) == {1}
    assert [len(business.events(n)) for n in (0, 1)] == [POST_EVENTS, 2]


def test_after_a_post_without_an_answer_nothing_more_is_posted() -> None:
    business = Business(Failure(Phase.WRITTEN, "timeout"))
    assert hook(business).publish(events(POST_EVENTS, POST_EVENTS, POST_EVENTS)) == set()
    assert len(business.posts) == 1


class Choosing(Business):
    """Refuses every post with one of these events."""

    def __init__(self, *refused: str) -> None:
        super().__init__()
        self.refused = refused
        self.away_after: float = math.inf
        """Posts after which it does not answer."""

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        super().send(request)
        if len(self.posts) > self.away_after:
            return Failure(Phase.NOT_WRITTEN, "connect")
        named = {event["delivery_key"] for event in self.events()}
        return httpx.Response(400 if named & set(self.refused) else 204)


def test_a_refused_batch_holds_up_no_other() -> None:
    some = events(1, 2, 1, POST_EVENTS)
    business = Choosing(some[1].event.delivery_key)
    with capture_logs() as logs:
        assert hook(business).publish(some) == {1, 3, 4}
    sizes = [len(business.events(n)) for n in range(len(business.posts))]
    assert sizes == [POST_EVENTS, 1, 2, 1, POST_EVENTS - 4, 4]
    (line,) = logs
    assert (line["event"], line["cause"]) == ("outcomes_refused", "the webhook answered 400")
    assert line["events"] == [one.event.event_id for one in some[1:3]]


def test_single_posts_end_with_the_first_that_has_no_answer() -> None:
    some = events(1, 1, 1, 1)
    business = Choosing(some[0].event.delivery_key)
    business.away_after = 3
    assert hook(business).publish(some) == {2}
    assert len(business.posts) == 4


def test_single_posts_have_less_time_than_the_duty() -> None:
    some = events(*[1] * 50)
    business = Choosing(some[0].event.delivery_key)
    settings = OutcomeSettings(webhook="https://shop.example/outcomes", webhook_secret=OLD)
    slow = OutcomeHook(settings, business, monotonic=lambda: float(len(business.posts)))
    taken = slow.publish(some)
    assert taken == {2, 3, 4, 5}
    assert len(business.posts) < LEASE_S


class Slow(Business):
    """Needs a second for an event, and has ten for a post."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        super().send(request)
        needed = len(self.events())
        self.now += min(needed, 10.0)
        return Failure(Phase.WRITTEN, "timeout") if needed > 10 else httpx.Response(204)


def looks(business: Slow, some: list[ReadyEvent]) -> int:
    """Returns the number of looks after which all of these were taken."""
    settings = OutcomeSettings(webhook="https://shop.example/outcomes", webhook_secret=OLD)
    posting = OutcomeHook(settings, business, monotonic=lambda: business.now)
    for number in range(1, 100):
        done = posting.publish(some)
        some = [one for one in some if one.batch not in done]
        if not some:
            return number
    raise AssertionError(f"{len(some)} events are left")


def test_a_slow_business_gets_fewer_events_in_a_post() -> None:
    """A backlog has full posts: each would run into the time limit, for ever."""
    business = Slow()
    assert looks(business, events(*[1] * 120)) <= 30
    assert max(len(business.events(n)) for n in range(4, len(business.posts))) <= 12


def test_a_batch_of_many_events_ends_at_a_slow_business_too() -> None:
    assert looks(Slow(), events(1, 150, 1)) <= 8


def test_the_posts_to_a_business_that_answers_again_grow() -> None:
    timeout = Failure(Phase.WRITTEN, "timeout")
    business = Business(timeout, timeout)
    posting = hook(business)
    some = events(*[1] * POST_EVENTS)
    while (
        len(business.events(-1) if business.posts else []) < POST_EVENTS or len(business.posts) < 3
    ):
        posting.publish(some)
    sizes = [len(business.events(n)) for n in range(len(business.posts))]
    assert sizes[:4] == [100, 50, 25, 25]
    assert len(sizes) < 150


@pytest.mark.parametrize("status", [301, 404, 410, 429])
def test_any_answer_but_2xx_is_tried_again(status: int) -> None:
    assert hook(Business(status)).publish(events(1)) == set()


@pytest.mark.parametrize(
    ("webhook", "secret", "text"),
    [
        ("shop.example", OLD, "outcomes.webhook: must be a full"),
        ("https://shop.example/", "geheim", "outcomes.webhook_secret: a signing secret is whsec_"),
    ],
)
def test_settings_of_the_wrong_form_are_refused(webhook: str, secret: str, text: str) -> None:
    with pytest.raises(SettingsError, match=text) as refused:
        OutcomeHook(OutcomeSettings(webhook=webhook, webhook_secret=secret), Business())
    assert "geheim" not in str(refused.value)
