"""Every adapter sends the form that a template has for its provider, and says so where there is none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from channels.channel import Account, Call, Channel
from channels.registry import PROVIDERS
from channels.template_support import TEMPLATE_SUPPORT
from message.delivery import Delivery, Rendered, deliveries_of
from message.envelope import Notification, Template
from tests.channels.calls import account as hook_account
from tests.channels.calls import delivery as hook
from tests.conformance.samples import WITHOUT, Sample, samples

AT_MS = 4_000_000_000_000
WRONG = Rendered(content={"no": "such key"})
SAMPLES = samples()
each_provider = pytest.mark.parametrize("of", SAMPLES, ids=lambda of: of.provider)


def account(of: Sample) -> Account:
    return of.account("smtp://127.0.0.1:1" if of.scheme == "smtp" else "https://a.example")


def delivery(notification: Notification, rendered: Rendered | None = None) -> Delivery:
    one = deliveries_of(notification, b"{}", expires_at=AT_MS)[0]
    one.attempt, one.call_key, one.rendered = 1, one.key, rendered
    return one


def plain(of: Sample) -> Delivery:
    return delivery(of.notification(1))


def named(of: Sample, rendered: Rendered | None) -> Delivery:
    """The same delivery, of a notification that names a template of ours."""
    changes = {"template": Template("ours", {}), "content": None}
    return delivery(msgspec.structs.replace(of.notification(1), **changes), rendered)


def own_form(of: Sample) -> Rendered:
    """What the sample's notification says, as the provider's own form; the others get nonsense."""
    said = of.notification(1)
    form = Rendered(said.template, said.content)
    return msgspec.structs.replace(WRONG, providers={of.provider: form, "another": WRONG})


def asked(channel: Channel, call: Call) -> tuple[Any, ...]:
    """All that an adapter makes of a call before its answer; headers and queries may hold signatures."""
    request = channel.request(call)
    of_batch = channel.batch_key(call.deliveries[0]) if channel.max_batch > 1 else None
    limit = channel.batch_limit(call.deliveries[0])
    return request.url.path, request.read(), of_batch, limit, channel.fingerprint(call)


def test_no_provider_is_left_out() -> None:
    assert {of.provider for of in SAMPLES} | WITHOUT == PROVIDERS.keys()


@each_provider
def test_its_own_form_is_sent_as_if_the_notification_had_said_it(of: Sample) -> None:
    form = named(of, own_form(of))
    assert of.channel.refusal(account(of), form) == ""
    calls = [Call(account(of), (one,), "token") for one in (plain(of), form, plain(of))]
    tries = ([asked(of.channel, call) for call in calls] for _ in range(5))
    # What tells the time may differ from one second to the next.
    before, made, _ = next(found for found in tries if found[0] == found[2])
    assert made == before


@each_provider
def test_where_there_is_none_its_refusal_says_so(of: Sample) -> None:
    others = Rendered(providers={"another": Rendered(content={"text": "x"})})
    said = f"no_template: template ours has nothing for {of.provider}"
    assert of.channel.refusal(account(of), named(of, others)) == said


@each_provider
def test_what_it_is_said_to_take_it_takes_and_nothing_else(of: Sample) -> None:
    taker, said = TEMPLATE_SUPPORT[of.provider], of.notification(1)
    assert taker.channel == said.channel
    assert taker.templates or said.template is None
    assert taker.contents or said.content is None
    if not taker.templates:
        assert of.channel.refusal(account(of), named(of, None)) != ""
    if not taker.contents:
        content = named(of, Rendered(content={"text": "x"}))
        assert of.channel.refusal(account(of), content).startswith("no_template: this provider")


def test_a_webhook_gets_its_form_too() -> None:
    channel = PROVIDERS["webhook"]
    one = hook(template=Template("ours", {}))
    form = Rendered(template=Template("THEIRS", {"a": 1}))
    one.rendered = Rendered(content={"text": "x"}, providers={"webhook": form})
    body = msgspec.json.decode(channel.request(Call(hook_account(), (one,))).read())
    assert body["template"] == {"id": "THEIRS", "params": {"a": 1}}
    assert "content" not in body


def test_a_delivery_that_is_not_rendered_is_what_its_notification_says() -> None:
    one = hook(content={"text": "x"})
    assert (one.content_for("webhook"), one.template_for("webhook")) == ({"text": "x"}, None)
    two = hook(template=Template("SMS_1"))
    assert two.template_for("aliyun_sms") is two.notification.template
