"""One module per provider: an account and notifications that its simulator takes.

    ACCOUNT         the account's table without its endpoint; credentials as the simulator has them
    PATH            what follows the simulator's address in the endpoint
    notification    (number) -> Notification: receivers and ids of their own, far from expiry
    PER_RECEIVER    codes of the error table that the provider gives for single receivers
    UNREACHABLE     code -> why no request can bring it about

and, where the provider needs them:

    SCHEME          "smtp": the simulator's SMTP listener
    UNDOCUMENTED    a code that the provider could word and does not document
    BY_STATUS       True: the provider answers errors by HTTP status, such a code with a 4xx
    LIMITED         True: its simulator keeps to the provider's limits (behaviour `limits`)
    ABSENCE_ALONE   True: its query proves that nothing was sent, and never that something was; receipts do
    RECEIPT_KEYS    what `[receipts.accounts.NAME]` says, if not a shared secret; `{url}` is the address
    SIGNS_WITH      the simulator's credentials that its receipts are signed with, where not the usual ones
    RECEIPTS_NAME_CALL  True: a receipt has the call's key, and proves a call in doubt
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

from channels.channel import Account, Channel
from channels.registry import PROVIDERS, load_accounts
from message.envelope import Notification
from simulator import Simulator

WITHOUT: frozenset[str] = frozenset({"webhook", "null"})
"""Ours: tests/channels/test_simulator.py and test_webhook.py hold the one, the other sends nothing."""


class Sample(NamedTuple):
    """What the suite needs of one provider."""

    provider: str
    account_table: Mapping[str, Any]
    path: str
    notification: Callable[[int], Notification]
    per_receiver: frozenset[str]
    unreachable: Mapping[str, str]
    scheme: str = "http"
    undocumented: str = ""
    by_status: bool = False
    limited: bool = False
    absence_alone: bool = False
    receipt_keys: Mapping[str, str] = {}
    signs_with: Mapping[str, str] = {}
    receipts_name_call: bool = False

    @property
    def channel(self) -> Channel:
        """The adapter."""
        return PROVIDERS[self.provider]

    def account(self, address: str) -> Account:
        """The account at a server's address (`http://127.0.0.1:4711`)."""
        table = {"provider": self.provider, **self.account_table, "endpoint": address + self.path}
        return load_accounts({self.provider: table})[self.provider]

    def address(self, simulator: Simulator) -> str:
        """Where the simulator serves this provider's scheme."""
        return simulator.smtp if self.scheme == "smtp" else simulator.url

    def code_for(self, row: str) -> str:
        """A code that a row stands for: itself, or one with its prefix."""
        prefix = row.removesuffix("*")
        return f"{prefix}Other" if prefix != row and not prefix[-1:].isalnum() else prefix


def sample(provider: str) -> Sample | None:
    """The provider's sample; None where it has none."""
    name = f"{__name__}.{provider}"
    if find_spec(name) is None:
        return None
    module = import_module(name)
    return Sample(
        provider,
        module.ACCOUNT,
        module.PATH,
        module.notification,
        module.PER_RECEIVER,
        module.UNREACHABLE,
        getattr(module, "SCHEME", "http"),
        getattr(module, "UNDOCUMENTED", ""),
        getattr(module, "BY_STATUS", False),
        getattr(module, "LIMITED", False),
        getattr(module, "ABSENCE_ALONE", False),
        getattr(module, "RECEIPT_KEYS", {}),
        getattr(module, "SIGNS_WITH", {}),
        getattr(module, "RECEIPTS_NAME_CALL", False),
    )


def samples() -> list[Sample]:
    """Those of all providers that have one, by name."""
    found = (sample(provider) for provider in sorted(PROVIDERS))
    return [one for one in found if one is not None]


UNLIMITED: Mapping[str, Mapping[str, str]] = {
    one.provider: {"limits": "off"} for one in samples() if one.limited
}
"""Behaviours of a simulator whose one application, team or robot stands for as many as a test wants."""
