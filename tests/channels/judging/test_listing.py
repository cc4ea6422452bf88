"""What a list proves: one rule for every resolver, tried on each of them with a generated provider.

A generated provider knows whether the message arrived. It lists it at once, late, redacted, truncated,
refused, or not at all, among other messages to the number. Whatever it says, a resolver never says "not
sent" of what arrived, and never "sent" of what did not.
"""

import ast
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from channels.channel import Account, Answer, Attempt, Channel, Failure, Phase, Resolution
from channels.judging import listing as module
from channels.judging.listing import Listing
from channels.providers.aliyun_sms.adapter import AliyunSms
from channels.providers.tencent_sms.adapter import TencentSms
from channels.providers.twilio.adapter import Twilio
from channels.providers.webhook.adapter import WebhookChannel
from channels.registry import PROVIDERS, load_accounts
from message.delivery import Delivery
from tests.channels.calls import delivery as webhook_delivery
from tests.channels.providers.sms_calls import AT_MS, KEY, delivery
from tests.conformance.samples import sample

HOUR_MS = 3_600_000
LAG_S = 600
CHINA = timezone(timedelta(hours=8))
LOST = Failure(Phase.WRITTEN, "reset", "")


class Case(NamedTuple):
    """One message, and how its provider lists it."""

    arrived: bool
    shown: str
    """listed, late, redacted, truncated, refused, empty, counted."""
    others: int
    """Messages of others to the number since the call."""
    calls: int
    """One, or two with hours between them; the last one arrived or none did."""
    age_s: int
    """Since the last call."""
    skew_s: int
    """How far the provider's clock is behind."""


SHOWN = ("listed", "late", "redacted", "truncated", "refused", "empty", "counted")
CASES = [
    Case(*one)
    for one in product(
        (True, False), SHOWN, (0, 1), (1, 2), (LAG_S - 1, LAG_S, 5 * HOUR_MS // 1_000), (0, 240)
    )
]


class Lister:
    """A provider's list of what went to the number, in the words of one provider."""

    def __init__(self, case: Case, attempt: Attempt) -> None:
        self.case = case
        self.at_ms = attempt.last_call - case.skew_s * 1_000
        late = case.shown == "late" and case.age_s < LAG_S
        hidden = case.shown in ("truncated", "empty", "counted") or late
        self.ours = case.arrived and not hidden
        self.uncounted = case.arrived and hidden and not late

    @property
    def consistent(self) -> bool:
        """Whether the list keeps its provider's promise: after its lag it shows or counts what arrived."""
        return self.case.shown != "empty" or not self.case.arrived

    def redacts(self, mine: bool) -> bool:
        """Whether the mark of the row is hidden."""
        return self.case.shown == "redacted" and mine


class Aliyun(Lister):
    """QuerySendDetails: TotalCount tells of rows that are missing."""

    def answer(self, _request: httpx.Request) -> Answer:
        if self.case.shown == "refused":
            return httpx.Response(200, json={"Code": "isp.SYSTEM_ERROR"})
        rows = [self.row(KEY)] if self.ours else []
        rows += [self.row(f"other-{number}") for number in range(self.case.others)]
        total = len(rows) + self.uncounted
        dtos = {"SmsSendDetailDTO": rows}
        return httpx.Response(
            200, json={"Code": "OK", "TotalCount": str(total), "SmsSendDetailDTOs": dtos}
        )

    def row(self, out_id: str) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at_ms / 1_000, UTC).astimezone(CHINA)
        mark = "" if self.redacts(out_id == KEY) else out_id
        return {
            "PhoneNum": "138****0001",
            "OutId": mark,
            "SendDate": at.strftime("%Y-%m-%d %H:%M:%S"),
        }


class Tencent(Lister):
    """PullSmsSendStatusByPhoneNumber: a full page may hide more; there is no count."""

    def answer(self, _request: httpx.Request) -> Answer:
        if self.case.shown == "refused":
            return httpx.Response(200, json={"Response": {"Error": {"Code": "InternalError"}}})
        rows = [self.row(KEY)] if self.ours else []
        full = 100 if self.uncounted else 0
        rows += [self.row(f"other-{number}") for number in range(self.case.others + full)]
        return httpx.Response(200, json={"Response": {"PullSmsSendStatusSet": rows[:100]}})

    def row(self, context: str) -> dict[str, Any]:
        mark = "" if self.redacts(context == KEY) else context
        return {
            "PhoneNumber": "+8613800000001",
            "SerialNo": f"no-{context}",
            "SessionContext": mark,
        }


class Messages(Lister):
    """Twilio's list: a further page is named where there is more; redacted numbers find nothing."""

    def answer(self, request: httpx.Request) -> Answer:
        if self.case.shown == "refused":
            return httpx.Response(429, json={"code": 20429})
        by_number = b"To=" in request.url.query
        masked = self.case.shown == "redacted"
        sids = ["SM0"] if self.ours else []
        sids += [f"SM{number + 1}" for number in range(self.case.others)]
        rows = [] if masked and by_number else [self.row(sid, masked=masked) for sid in sids]
        following = "/x?PageToken=1" if by_number and self.uncounted else None
        if b"PageToken" in request.url.query:
            return LOST
        return httpx.Response(200, json={"messages": rows, "next_page_uri": following})

    def row(self, sid: str, *, masked: bool) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at_ms / 1_000, UTC)
        to = "+861380000XXXX" if masked else "+8613800000001"
        return {
            "sid": sid,
            "to": to,
            "body": "Your code is 4711",
            "direction": "outbound-api",
            "date_created": format_datetime(at),
        }


class Endpoint(Lister):
    """The webhook protocol's state; a router where it is refused or redacted."""

    def answer(self, _request: httpx.Request) -> Answer:
        shown = self.case.shown
        if shown == "refused":
            return httpx.Response(404, text="404 page not found")
        if shown in ("redacted", "truncated", "counted"):
            return httpx.Response(200, text="<html></html>")
        state = "sent" if self.ours else "not_sent"
        return httpx.Response(200 if self.ours else 404, json={"state": state})


class Subject(NamedTuple):
    """One resolver and a generated provider that speaks its words."""

    channel: Channel
    account: Account
    delivery: Callable[[], Delivery]
    lister: type[Any]
    reach_days: int | None


def account_of(provider: str, table: Mapping[str, Any]) -> Account:
    named = {"provider": provider, "endpoint": "https://a.example", **table, "query_lag_s": LAG_S}
    return load_accounts({"main": named})["main"]


def sms() -> Delivery:
    return delivery(content={"text": "Your code is 4711"})


def table_of(provider: str) -> Mapping[str, Any]:
    found = sample(provider)
    assert found is not None
    return found.account_table


SUBJECTS = {
    "aliyun_sms": Subject(
        AliyunSms(), account_of("aliyun_sms", table_of("aliyun_sms")), sms, Aliyun, 30
    ),
    "tencent_sms": Subject(
        TencentSms(), account_of("tencent_sms", table_of("tencent_sms")), sms, Tencent, 7
    ),
    "twilio": Subject(Twilio(), account_of("twilio", table_of("twilio")), sms, Messages, None),
    "webhook": Subject(
        WebhookChannel(),
        account_of("webhook", {"status_query": True}),
        webhook_delivery,
        Endpoint,
        None,
    ),
}


TASKS = frozenset({"dingtalk"})
"""Whose query is of a task that the provider took: tests/channels/test_task_results.py."""


def test_every_resolver_that_there_is_is_judged() -> None:
    asking = {name for name, one in PROVIDERS.items() if "resolve" in vars(type(one))}
    assert asking == set(SUBJECTS) | TASKS


def attempt_of(subject: Subject, case: Case) -> Attempt:
    one = subject.delivery()
    one.call_key = KEY
    last = AT_MS + (case.calls - 1) * 26 * HOUR_MS
    return Attempt(one, AT_MS, last + case.age_s * 1_000, last_called_at=last)


def resolved(subject: Subject, case: Case) -> tuple[Resolution, Any]:
    attempt = attempt_of(subject, case)
    lister = subject.lister(case, attempt)
    dialogue = subject.channel.resolve(subject.account, attempt)
    assert dialogue is not None
    try:
        request = next(dialogue)
        while True:
            answer = lister.answer(request)
            if isinstance(answer, httpx.Response):
                behind = datetime.fromtimestamp(attempt.now / 1_000 - case.skew_s, UTC)
                answer.headers["date"] = format_datetime(behind, usegmt=True)
            request = dialogue.send(answer)
    except StopIteration as end:
        return end.value.resolution, lister


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_answer_makes_a_resolver_say_what_is_not_so(name: str) -> None:
    subject, said = SUBJECTS[name], set()
    for case in CASES:
        found, lister = resolved(subject, case)
        if not lister.consistent:
            continue
        said.add(found)
        assert found is not (Resolution.NOT_SENT if case.arrived else Resolution.SENT), case
        if case.shown == "refused":
            assert found is Resolution.ASK_LATER, case
        if case.age_s < LAG_S:
            assert found is not Resolution.NOT_SENT, case
    provable = {Resolution.NOT_SENT, Resolution.ASK_LATER}
    assert said == provable | (set() if name == "twilio" else {Resolution.SENT})


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_whole_list_settles_what_can_be_settled(name: str) -> None:
    """Nothing that is provable is left to the policy."""
    subject = SUBJECTS[name]
    empty = Case(False, "listed", 0, 2, LAG_S, 0)
    assert resolved(subject, empty)[0] is Resolution.NOT_SENT
    arrived = Case(True, "listed", 1, 2, 1, 0)
    expected = Resolution.ASK_LATER if name == "twilio" else Resolution.SENT
    assert resolved(subject, arrived)[0] is expected


@pytest.mark.parametrize("name", [name for name in SUBJECTS if name != "webhook"])
@pytest.mark.parametrize("skew_s", [400, -400, 86_400])
def test_a_clock_that_is_minutes_away_says_nothing(name: str, skew_s: int) -> None:
    for arrived in (True, False):
        found, _ = resolved(SUBJECTS[name], Case(arrived, "empty", 0, 1, LAG_S, skew_s))
        assert found is Resolution.ASK_LATER


def evidence(**fields: Any) -> Listing:
    attempt = Attempt(sms(), AT_MS, AT_MS + LAG_S * 1_000, **fields)
    return Listing(attempt, lag_s=LAG_S)


def test_a_list_that_was_not_read_to_its_end_proves_nothing() -> None:
    assert evidence().verdict().resolution is Resolution.ASK_LATER
    begun = evidence()
    begun.pages().page(["a"])
    assert begun.verdict().resolution is Resolution.ASK_LATER
    one_of_two = evidence()
    one_of_two.pages().end()
    one_of_two.pages()
    assert one_of_two.verdict().resolution is Resolution.ASK_LATER


def test_proof_that_it_was_sent_stands_whatever_else_was_said() -> None:
    found = evidence()
    found.later("a page was refused")
    found.sent("p-1")
    assert found.verdict().resolution is Resolution.SENT
    assert found.verdict().provider_id == "p-1"


@given(
    st.lists(st.integers(0, 30), unique=True, max_size=30),
    st.integers(1, 5),
    st.integers(-3, 3),
    st.integers(0, 6),
)
def test_pages_that_shift_while_they_are_read_prove_nothing(
    rows: list[int], size: int, grown: int, after: int
) -> None:
    """Rows come or go at the front between two pages, so that some are met twice or not at all."""
    listing, moved = evidence(), False
    pages, shown, place = listing.pages(), list(rows), 0
    while True:
        page = shown[place : place + size]
        pages.page(page, len(shown))
        place += size
        if not page or not pages.missing:
            break
        if place == after * size and grown:
            moved = True
            shown = [*range(100, 100 + grown), *shown] if grown > 0 else shown[-grown:]
    pages.end()
    found = listing.verdict().resolution
    assert found is (Resolution.ASK_LATER if moved else Resolution.NOT_SENT)


def test_only_the_rule_says_not_sent() -> None:
    """`Resolution.NOT_SENT` under channels/ is this module's, and DingTalk's of a member it names."""
    root = Path(module.__file__).parents[1]
    users = {path.relative_to(root).as_posix() for path in root.rglob("*.py") if _says(path)}
    assert users == {"judging/listing.py", "providers/dingtalk/notice.py"}


def _says(path: Path) -> bool:
    """Whether the module words it; asking whether another said so is no word of its own."""
    tree = ast.parse(path.read_text())
    asked = {
        id(node) for one in ast.walk(tree) if isinstance(one, ast.Compare) for node in ast.walk(one)
    }
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "NOT_SENT"
        and isinstance(node.value, ast.Name)
        and node.value.id == "Resolution"
        and id(node) not in asked
        for node in ast.walk(tree)
    )
