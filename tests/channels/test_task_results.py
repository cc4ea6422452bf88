"""What the result of a task proves of one member, tried on a generated provider.

It knows whether this task, and an earlier call whose answer was lost, reached the member. It tells so in
the lists of getsendresult: at once, late, under another name, cut short, refused, empty, or twice over.
"Not sent" is followed by another call: it is never said of what has arrived and would arrive again. "Sent"
is never said of what has not arrived.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from itertools import product
from typing import Any, NamedTuple

import httpx
import pytest

from channels.channel import Attempt, Resolution, ResolveResult
from channels.providers.dingtalk.app import CHANNELS
from tests.channels.providers.chats import account_of, deliveries

TABLE = {"provider": "dingtalk", "app_key": "ding1", "app_secret": "s", "agent_id": 7}
NOON_MS = int(datetime(2026, 5, 1, 12, tzinfo=timezone(timedelta(hours=8))).timestamp() * 1_000)
HOUR_MS = 3_600_000
REACHED = ("read_user_id_list", "unread_user_id_list")
KEPT_BACK = ("failed", "invalid", "forbidden", "143103", "143105", "143106", "1430002", "999999")
SHOWN = ("listed", "late", "redacted", "truncated", "refused", "empty", "503", "twice")


class Case(NamedTuple):
    """One member of one task."""

    arrived: bool
    """By this task."""
    earlier: bool | None
    """Whether an earlier call in doubt had reached him; None: there was none."""
    shown: str
    how: str
    """The list, or why he was kept back."""
    to_midnight_ms: int
    """Until DingTalk takes a repeat for a new notice."""


def cases() -> list[Case]:
    made: list[Case] = []
    for arrived, earlier, shown, left in product(
        (True, False), (None, True, False), SHOWN, (12 * HOUR_MS, 90_000)
    ):
        # That he had this very content today is so only if an earlier call brought it.
        ways = REACHED if arrived else [how for how in KEPT_BACK if how != "143106" or earlier]
        made += [Case(arrived, earlier, shown, how, left) for how in ways]
    return made


def lists_of(how: str, user: str) -> dict[str, Any]:
    if how in REACHED:
        return {how: [user]}
    if how in ("failed", "invalid", "forbidden"):
        return {f"{how}_user_id_list": [user]}
    return {"forbidden_list": [{"code": how, "count": 1, "userid": user}]}


def answer_of(case: Case) -> httpx.Response:
    told: dict[str, Any] = lists_of(case.how, "u1")
    if case.shown in ("late", "empty"):
        told = (
            {name: [] for name in REACHED} if case.shown == "empty" else lists_of(REACHED[0], "u2")
        )
    if case.shown == "redacted":
        told = lists_of(case.how, "u*")
    if case.shown == "twice" and case.arrived:
        told |= lists_of("failed", "u1") if case.how == REACHED[0] else {}
    said = {"errcode": 0, "errmsg": "ok", "send_result": told}
    if case.shown == "refused":
        said = {"errcode": 40035, "errmsg": "no such task"}
    body = json.dumps(said).encode()
    if case.shown == "truncated":
        body = body[:-3]
    return httpx.Response(503 if case.shown == "503" else 200, content=body)


def resolved(case: Case) -> ResolveResult:
    (one,) = deliveries("dingtalk", ["u1"], {"text": "a"})
    now = NOON_MS + 12 * HOUR_MS - case.to_midnight_ms
    first = now if case.earlier is None else now - 60_000
    attempt = Attempt(one, called_at=first, now=now, token="T", last_called_at=now, task="99")
    dialogue = CHANNELS[0].resolve(account_of(TABLE), attempt)
    assert dialogue is not None
    next(dialogue)
    with pytest.raises(StopIteration) as end:
        dialogue.send(answer_of(case))
    found: ResolveResult = end.value.value
    return found


def test_no_result_makes_a_resolver_say_what_is_not_so() -> None:
    said = set()
    for case in cases():
        found = resolved(case)
        said.add(found.resolution)
        has = case.arrived or bool(case.earlier)
        if found.resolution is Resolution.SENT:
            assert has, case
        if found.resolution is Resolution.REFUSED:
            assert not has, case
        if found.resolution is Resolution.NOT_SENT:
            same_day = found.delay_ms < case.to_midnight_ms
            assert not case.arrived, case
            assert not case.earlier or same_day, case
        if case.shown not in ("listed", "twice"):
            assert found.resolution is Resolution.ASK_LATER, case
    assert said == set(Resolution)


def test_a_whole_result_settles_what_can_be_settled() -> None:
    for case in cases():
        if case.shown == "listed" and case.earlier is None:
            wanted = {
                **dict.fromkeys(REACHED, Resolution.SENT),
                **dict.fromkeys(("invalid", "1430002"), Resolution.REFUSED),
            }.get(case.how, Resolution.NOT_SENT)
            assert resolved(case).resolution is wanted, case


def test_what_an_earlier_call_leaves_open_is_final_so_that_nobody_waits_for_more() -> None:
    found = resolved(Case(False, True, "listed", "143105", HOUR_MS))
    assert (found.resolution, found.final) == (Resolution.ASK_LATER, True)
    assert found.detail == "143105; an earlier call may have arrived"
