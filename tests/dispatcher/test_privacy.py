"""No receiver and no content in a detail, a reason, a trace event, a provider's id or a log line.

Each field of a notification in turn holds the secret, as a value, in a list, in a table and as a key.
Then all that can refuse it does: the envelope's rules, its template, its adapter, and a provider that
repeats the whole request in every member of its answer.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from backends.logs import configure
from backends.settings import LogSettings
from channels.channel import Account, Call, Channel, Failure, Phase
from channels.engine import Engine
from channels.registry import PROVIDERS, load_accounts
from channels.tokens.contract import NoTokens
from dispatcher.kafka.offsets import Offsets
from dispatcher.kafka.source import _poison
from dispatcher.metrics import Metrics
from dispatcher.pipeline.batching import calls_of
from dispatcher.pipeline.settle import settlement_of
from dispatcher.pipeline.telemetry import WorkerTelemetry
from dispatcher.pipeline.work import Assignment, KafkaRecord, Work
from message.delivery import deliveries_of
from message.envelope import EnvelopeError, Notification, check_arrival, decode, encode
from message.outcomes import Accepted
from message.vocabulary import Lane
from policy.schema import LanePolicy
from policy.templates.templates import Templates
from sending.lane_routes import Route
from sending.runtime.clock import Clock
from sending.template_renderer import TemplateRejected, rendered
from tests.conformance.samples import sample
from tests.dispatcher.fakes import NOW_MS, Message
from tests.dispatcher.pipeline.test_telemetry import Kept

SECRETS = (
    "+8613912345678",
    "geheim.person@example.org",
    "Ihr Geheimnis lautet 918273, 您的验证码是九一八二七三, +8613912345678 geheim.person@example.org",
)
MARKS = ("3912345678", "geheim.person", "Geheimnis", "918273", "九一八二七三")
"""Parts of the secrets that nothing else holds."""
FORMS = (("value", SECRETS), ("list", SECRETS[2:]), ("table", SECRETS[2:]), ("key", SECRETS[2:]))


class Echo:
    """A transport to a provider that repeats the request in every member of its answer."""

    def __init__(self, status: int) -> None:
        self.status = status

    def send(self, request: httpx.Request) -> httpx.Response | Failure:
        said = request.read().decode("utf-8", "replace")
        with suppress(ValueError):
            said += json.dumps(json.loads(said), ensure_ascii=False)
        if not self.status:
            return Failure(Phase.WRITTEN, "protocol", said)
        body = {
            **dict.fromkeys(
                ("code", "message", "msg", "errmsg", "name", "id", "sid", "msgid"), said
            ),
            **dict.fromkeys(("Code", "Message", "RequestId", "BizId", "error_message"), said),
            "errcode": 40_058,
            "error_code": 21_211,
            "error": {"code": self.status, "status": said, "message": said, "details": []},
            "Response": {"Error": {"Code": said, "Message": said}, "RequestId": said},
        }
        return httpx.Response(self.status, json=body)


class Granted(NoTokens):
    """A token for whoever asks."""

    def get(self, account: Any, source: Any) -> str:
        return "token"

    def held(self, account: Any, source: Any) -> str | None:
        return "token"

    def renew(self, account: Any, source: Any, refused: str) -> str:
        return "token"


class Broken:
    """An adapter that fails over a message, with what the message holds in its error."""

    def __init__(self, real: Channel) -> None:
        self.__dict__["real"] = real

    def __getattr__(self, name: str) -> Any:
        if name in ("refusal", "request", "outcomes"):
            return self._fail
        return getattr(self.real, name)

    def _fail(self, _: Any, what: Any, *__: Any) -> Any:
        delivery = what.deliveries[0] if isinstance(what, Call) else what
        raise ValueError(f"{delivery.notification} {delivery.receiver}")


def base(provider: str) -> tuple[Channel, Account, Notification]:
    found = sample(provider)
    if found is not None:
        host = "smtp://127.0.0.1:9" if found.scheme == "smtp" else "http://127.0.0.1:9"
        return found.channel, found.account(host), found.notification(1)
    (account,) = load_accounts(
        {"a": {"provider": "webhook", "endpoint": "http://127.0.0.1:9/hook"}}
    ).values()
    plain = {"text": "hello there", "nested": {"list": [1, "two"]}}
    one = Notification(
        id="n-1",
        channel="webhook",
        kind="notice",
        receivers=["u"],
        content=plain,
        created_at=NOW_MS,
    )
    return PROVIDERS["webhook"], account, one


def paths(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    items = (
        tree.items()
        if isinstance(tree, dict)
        else enumerate(tree)
        if isinstance(tree, list)
        else ()
    )
    for key, value in items:
        yield from paths(value, (*at, key))


def marked(tree: Any, path: tuple[Any, ...], form: str, secret: str) -> Any:
    copy = json.loads(json.dumps(tree))
    around = copy
    for key in path[:-1]:
        around = around[key]
    if form == "key" and isinstance(around, dict):
        around[secret] = around.pop(path[-1])
    else:
        around[path[-1]] = {"value": secret, "list": [secret], "table": {"x": secret}}.get(
            form, secret
        )
    return copy


def cases(one: Notification) -> Iterator[tuple[str, bytes]]:
    tree = json.loads(encode(one))
    tree |= {"unknown": 1, "account": "a", "ordering_key": "k", "resend_of": "r"}
    tree["attributes"] = {"x": 1}
    tree.pop("biz_id", None)  # the business's own name, which the trace has a member for
    for path in paths(tree):
        for form, secrets in FORMS:
            for secret in secrets:
                kept = marked(tree, path, form, secret)
                if path != ("account",):
                    kept.pop("account", None)
                name = f"{'.'.join(map(str, path))} as {form}"
                yield name, json.dumps(kept, ensure_ascii=False).encode()
    for secret in SECRETS:
        yield "both", encode(one)[:-1] + f',"x":"{secret}'.encode()
        yield "a text", json.dumps(secret).encode()


def ways(channel: Channel) -> list[tuple[Any, Engine]]:
    """The adapter with each provider that repeats the request, and one that breaks."""
    found: list[tuple[Any, Any]] = [(channel, Echo(status)) for status in (0, 200, 400)]
    found += [(Broken(channel), Echo(200))]
    return [(adapter, Engine(transport, Granted())) for adapter, transport in found]


def told(
    account: Account,
    one: Notification,
    adapters: list[tuple[Any, Engine]],
    metrics: Metrics,
    payload: bytes,
) -> tuple[list[Any], int]:
    """Everything that is told of the payload, and how many ends it came to."""
    lane = Lane(one.channel, one.kind)
    assignment = Assignment(lane.topic(), 0, lane, Offsets())
    try:
        notification = decode(payload)
        check_arrival(notification, lane, NOW_MS)
    except EnvelopeError as exc:
        poison = _poison(Message(0, payload), assignment, 0, exc, [])
        return [poison.code, poison.detail], 1
    try:
        rendered(Templates(), notification)
    except TemplateRejected as exc:
        return [exc.reason], 1
    said: list[Any] = []
    for adapter, engine in adapters:
        record = KafkaRecord(assignment, 0, notification, payload, NOW_MS, None)
        works = [
            Work(delivery, record)
            for delivery in deliveries_of(notification, payload, expires_at=1 << 60)
        ]
        for work in works:
            work.route = Route(account, adapter)
            work.delivery.attempt = 1
        calls_of(works, {lane.name: SimpleNamespace(most=None)})
        for work in works:
            said.append(getattr(work.intent, "reason", ""))
            (work.end,) = engine.send(adapter, Call(account, (work.delivery,)), 1.0)
            settlement = settlement_of(work, LanePolicy())
            assert settlement is not None
            kept = Kept()
            report = WorkerTelemetry(kept, metrics, clock=Clock(), worker="w")
            report.settled([(work, settlement)], [True], 0.1)
            event = kept.events[-1]
            accepted = isinstance(work.end, Accepted)
            # The ids of other providers than webhook are theirs alone to word, and are looked up again.
            named = (
                ()
                if accepted and account.provider != "webhook"
                else (settlement.provider_id, event.provider_id)
            )
            said += [settlement.reason, event.reason, event.detail, *named]
            said += [] if accepted else [msgspec.to_builtins(work.end)]
    return said, len(said)


@pytest.mark.parametrize("provider", sorted(set(PROVIDERS) - {"null"}))
def test_no_secret_is_told_wherever_it_stands(provider: str) -> None:
    logs = io.StringIO()
    configure(LogSettings(level="debug", format="json"), stream=logs)
    leaks, ends = set(), 0
    channel, account, one = base(provider)
    adapters, metrics = ways(channel), Metrics()
    try:
        for name, payload in cases(one):
            logs.seek(0)
            logs.truncate()
            said, count = told(account, one, adapters, metrics, payload)
            ends += count
            text = json.dumps([said, logs.getvalue()], ensure_ascii=False)
            leaks |= {
                f"{name}: {mark}: {text[max(0, text.find(mark) - 90) :][:180]}"
                for mark in MARKS
                if mark in text
            }
    finally:
        structlog.reset_defaults()
    assert not leaks, "\n".join(sorted(leaks)[:20])
    assert ends > 100
