"""What the tests of chats and push services share: calls from literals, and a sender to a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from channels.channel import Account, Attempt, Call, Channel
from channels.engine import Engine, Sender
from channels.probe.probe import ExchangeRecorder, OwnTokens
from channels.registry import PROVIDERS, load_accounts
from message.delivery import Delivery, deliveries_of
from message.envelope import Notification, Template
from message.outcomes import Accepted, AnyOutcome, Rejected, Unknown
from simulator import Faults, Simulator
from tests.conformance.samples import sample

KEY = "0123456789abcdef0123456789abcdef"
TIMEOUT_S = 5.0
EXPIRES_AT = 4_000_000_000_000


def account_of(
    table: dict[str, Any], endpoint: str = "https://provider.example", **more: Any
) -> Account:
    """An account as the configuration would have it."""
    return load_accounts({"main": {**table, "endpoint": endpoint, **more}})["main"]


def deliveries(
    channel: str,
    receivers: Sequence[str],
    content: dict[str, Any] | None = None,
    template: Template | None = None,
    *,
    attempt: int = 1,
    expires_at: int = EXPIRES_AT,
) -> list[Delivery]:
    """One per receiver, made ready for a call of the key KEY."""
    notification = Notification(
        id="m-1",
        channel=channel,
        kind="notice",
        receivers=list(receivers),
        content=content,
        template=template,
        created_at=1,
    )
    made = deliveries_of(notification, b"", expires_at=expires_at)
    for one in made:
        one.attempt, one.call_key = attempt, KEY
    return made


class Peer:
    """One provider's adapter before its simulator."""

    def __init__(self, provider: str, simulator: Simulator, transport: Sender) -> None:
        of = sample(provider)
        assert of is not None
        self.sample = of
        self.simulator = simulator
        self.channel: Channel = PROVIDERS[provider]
        self.account = of.account(simulator.url)
        self.recorder = ExchangeRecorder(transport)
        self.tokens = OwnTokens(self.recorder, TIMEOUT_S)
        self.engine = Engine(self.recorder, self.tokens)

    def call(self, *numbers: int, attempt: int = 1, **options: Any) -> Call:
        """What the sample says for the first number, to the receivers of all; `options` of the account."""
        each = [self.sample.notification(number) for number in numbers]
        receivers = [one.receivers[0] for one in each]
        whole = msgspec.structs.replace(each[0], receivers=receivers)
        made = deliveries_of(whole, b"", expires_at=EXPIRES_AT)
        for one in made:
            one.attempt, one.call_key = attempt, made[0].key
        account = self.account
        if options:
            changed = {**self.sample.account_table, **options}
            account = account_of(changed, self.account.endpoint)
        return Call(account, made)

    def send(self, call: Call, *rules: Faults) -> list[AnyOutcome]:
        """Under these rules, which hold until the next send."""
        self.simulator.control(rules=list(rules))
        return self.engine.send(self.channel, call, TIMEOUT_S)

    def deliver(self, number: int, *, most: int = 40) -> AnyOutcome:
        """As recovery does inside a dedup window: the same call again until it is settled."""
        outcome: AnyOutcome = Unknown("not_sent_yet")
        for attempt in range(1, most + 1):
            (outcome,) = self.engine.send(
                self.channel, self.call(number, attempt=attempt), TIMEOUT_S
            )
            if isinstance(outcome, Accepted | Rejected):
                break
        return outcome

    def attempt(self, delivery: Delivery) -> Attempt:
        """One in doubt, with the token that was used last."""
        token = self.tokens.texts.get(self.account.name, "")
        return Attempt(delivery, called_at=1, now=2, token=token)

    def accepted(self) -> list[str]:
        """Receivers, in the order in which the provider accepted something for them."""
        return [record.receiver for record in self.simulator.records() if record.accepted]
