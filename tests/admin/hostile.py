"""Texts that would act in a page that did not treat them as text, and a ledger full of them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, text

from admin.parts import ConsoleParts
from idempotency.fleet.snapshots import LaneSnapshot, ProcessSnapshot, ReceiptSnapshot, encoded
from message.delivery import Delivery, Origin, deliveries_of
from message.envelope import Notification
from message.envelope import encode as encode_envelope
from message.states import State
from tests.idempotency.making import claims
from tracing.events import Stage, TraceEvent

MARKER: Final = "hgx"
HOSTILE: Final = (
    "\"'><hgx onload=hgx()></script></title></textarea><script>hgx()</script>{{7*7}}${hgx}",
    "javascript:hgx()",
    "hgx\u202etxt.exe\u2066\u200b<img src=x onerror=hgx()>&lt;hgx&gt;",
)
"""Each has MARKER: markup for every context, an address that runs, marks that turn text around."""
LANE: Final = "sms.notice"
RECEIVER: Final = "+8613800000001"
KEPT_AS_TEXT: Final = ("message_id", "biz_id", "provider_id", "account", "ordering_key", "template")
STATES: Final = (
    *(State.SENT, State.DELIVERED, State.UNDELIVERED, State.UNKNOWN, State.PARKED),
    *(State.REJECTED, State.EXPIRED, State.RETRY, State.IN_FLIGHT, State.DROPPED),
)
_URLS: Final = frozenset({"href", "src", "action", "formaction", "data", "hx-get", "hx-post"})


class LiveParts(HTMLParser):
    """Reads a page, and collects what a browser would run, with links and forms."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.links: set[str] = set()
        self.fields: dict[str, set[str]] = {}
        self.text = ""
        self._action = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if tag in (MARKER, "style", "base", "iframe", "object", "embed"):
            self.found.append(f"<{tag}>")
        if tag == "script" and not ("nonce" in values and values.get("src", "").startswith("/")):
            self.found.append(f"<script {values}>")
        for name, value in values.items():
            runs = name in _URLS and not value.startswith(("/", "#", "?", "data:image/"))
            if name.startswith(("on", "hx-on")) or name in ("style", "srcdoc") or (runs and value):
                self.found.append(f"<{tag} {name}={value!r}>")
        if tag == "a" and values.get("href", "").startswith(("/", "?")):
            self.links.add(values["href"])
        if tag == "form":
            self._action = values.get("action", "") if values.get("method", "get") == "get" else ""
        if tag in ("input", "select", "textarea") and self._action and values.get("name"):
            self.fields.setdefault(self._action, set()).add(values["name"])

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._action = ""

    def handle_data(self, data: str) -> None:
        self.text += data


def fill(parts: ConsoleParts, value: str, lane: str = LANE) -> list[str]:
    """Writes rows whose every free text is `value`, of one lane. Returns the deliveries' keys."""
    now = time.time_ns() // 1_000_000
    made = [_delivery(number, lane, now) for number in range(len(STATES))]
    parts.ledger.claim(claims(made), "w1")
    with parts.databases.primary.begin() as connection:
        for delivery, state in zip(made, STATES, strict=True):
            _spoil(connection, delivery.key, state, value, now)
        for table, row in _rows(value, lane, now, made[0]).items():
            _insert(connection, table, row, value)
    parts.journal.record_alone(
        person=value, action=value, subject=value, reason=value, address=value, lane=lane
    )
    return [one.key for one in made]


def _delivery(number: int, lane: str, now: int) -> Delivery:
    channel, kind = lane.split(".")
    sent = Notification(
        id=hashlib.sha256(f"{lane} {number}".encode()).hexdigest()[:32],
        channel=channel,
        kind=kind,
        receivers=[RECEIVER if channel == "sms" else "lin@example.com"],
        content={"text": "hello"},
        created_at=now,
    )
    origin = Origin(f"hongyan.dispatch.{lane}", 1, number)
    return deliveries_of(sent, encode_envelope(sent), expires_at=now + 600_000, origin=origin)[0]


def _spoil(connection: Connection, key: str, state: State, value: str, now: int) -> None:
    """Puts the text into a delivery's own fields, as a message or a provider would bring it."""
    texts = dict.fromkeys(KEPT_AS_TEXT, value)
    texts["message_id"] = texts["provider_id"] = f"{value} {key[:8]}"
    sets = ", ".join(f"{name} = :{name}" for name in (*texts, "reason", "owner", "policy_version"))
    connection.execute(
        text(
            f"UPDATE deliveries SET {sets}, state = :state, updated_at = :now, call_key = :call,"
            " called_at = :now, next_at = CASE WHEN :state IN ('RETRY', 'PARKED', 'UNKNOWN')"
            " THEN :now ELSE next_at END WHERE delivery_key = :key"
        ),
        {
            **texts,
            "reason": value,
            "owner": value,
            "policy_version": value,
            "state": state.value,
            "now": now,
            "call": key,
            "key": key,
        },
    )


def _rows(value: str, lane: str, now: int, one: Delivery) -> Mapping[str, dict[str, Any]]:
    """Returns a row a table: its columns with fixed forms. `_insert` fills its other texts."""
    return {
        "trace_events": _trace_row(value, lane, now, one),
        "workers": _worker_row(value, lane, now),
        "alerts": _alert_row(lane, now),
        **_order_rows(lane, now),
        "receipts": _receipt_row(now, one),
        **_spark_rows(lane, now),
        "console_views": {"shared": 1, "made_at": now, "updated_at": now},
    }


def _trace_row(value: str, lane: str, now: int, one: Delivery) -> dict[str, Any]:
    """Returns the trace of a delivery, with one event."""
    event = TraceEvent(
        at=now,
        stage=Stage.SETTLED,
        message_id=f"{value} {one.key[:8]}",
        delivery_key=one.key,
        lane=lane,
        biz_id=value,
        receiver=value,
        template=value,
        worker=value,
        reason=value,
        code=value,
        detail=value,
        account=value,
        state="SENT",
        attempt=1,
    )
    return {
        "day": now // 86_400_000,
        "at": now,
        "message_id": event.message_id,
        "events": msgspec.json.encode([event]).decode(),
    }


def _worker_row(value: str, lane: str, now: int) -> dict[str, Any]:
    """Returns a live worker, whose snapshot names an account with an open breaker and receipts."""
    snapshot = ProcessSnapshot(
        3,
        {lane: LaneSnapshot(in_flight=2, open=[value])},
        templates=1,
        receipts={value: ReceiptSnapshot(taken=1, last_s=3)},
    )
    return {
        "epoch": 1,
        "pid": 1,
        "state": "RUNNING",
        "lanes": lane,
        "threads": 1,
        "lease_ms": 600_000,
        "started_at": now,
        "heartbeat_at": now,
        "kind": "worker",
        "snapshot": encoded(snapshot),
    }


def _alert_row(lane: str, now: int) -> dict[str, Any]:
    """Returns an alert that is firing."""
    counters = ("silenced", "post_count", "post_at", "next_try", "tries")
    return {
        **dict.fromkeys(counters, 0),
        "told_at": now,
        "kept": 1,
        "lane": lane,
        "lasting": 1,
        "state": "firing",
        "since": now,
        "last_at": now,
        "post_state": "",
    }


def _order_rows(lane: str, now: int) -> dict[str, dict[str, Any]]:
    """Returns a person's orders: a silence, a pause of a lane, a drain."""
    later = now + 600_000
    open_ended = dict.fromkeys(("ended_at", "ended_by", "ended_reason"))
    return {
        "alert_silences": {"until": later, "made_at": now},
        "lane_pauses": {"lane": lane, "paused_at": now, "until": later, **open_ended},
        "worker_drains": {"asked_at": now},
    }


def _receipt_row(now: int, one: Delivery) -> dict[str, Any]:
    """Returns a receipt that was applied to the delivery."""
    return {
        "state": "UNDELIVERED",
        "at": now,
        "received_at": now,
        "tries": 0,
        "next_at": None,
        "applied": "APPLIED",
        "applied_at": now,
        "delivery_key": one.key,
        "receivers": "[]",
        "call_key": one.key,
    }


def _spark_rows(lane: str, now: int) -> dict[str, dict[str, Any]]:
    """Returns a failed run of the Spark jobs, and a finding."""
    return {
        "spark_runs": {
            "job": "lost",
            "started_at": now,
            "ended_at": now,
            "state": "FAILED",
            "positions": "{}",
            "watermark": now,
            "figures": "{}",
        },
        "lost_findings": {
            "lane": lane,
            "cause": "passed",
            "created_at": now,
            "expires_at": now + 600_000,
            "certain": 1,
            "body": None,
            "first_run": 1,
            "last_run": 1,
            "found_at": now,
            "status": "NEW",
            "decided_at": None,
        },
    }


def _insert(connection: Connection, table: str, row: dict[str, Any], value: str) -> None:
    """Writes one row. Every text column that the row leaves out gets the value, new ones, too."""
    names = dict(_columns(connection, table))
    texts = {n: value for n, kind in names.items() if kind == "text" and n not in row}
    known = {n: v for n, v in (texts | row).items() if n in names}
    columns, places = ", ".join(known), ", ".join(f":{name}" for name in known)
    connection.execute(text(f"INSERT INTO {table} ({columns}) VALUES ({places})"), known)


def _columns(connection: Connection, table: str) -> Iterator[tuple[str, str]]:
    """Yields the columns of a table, and `text` for those that hold one."""
    if connection.dialect.name == "sqlite":
        for row in connection.execute(text(f"PRAGMA table_info({table})")):
            yield row[1], "text" if row[2] in ("TEXT", "VARCHAR(32)") else "other"
        return
    query = text(
        "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = :table"
        " AND table_schema = current_schema()"
    )
    for name, kind in connection.execute(query, {"table": table}):
        yield name, "text" if kind in ("text", "character varying") else "other"
