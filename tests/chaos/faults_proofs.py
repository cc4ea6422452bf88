"""What the providers of a fault run show of a call in doubt, and what that proves (docs/channels.md).

    query       their list tells whether it was sent
    window      they drop a repeat
    absence     their list proves that nothing was sent, and never that something was
    presence    their list proves that it was sent; that it was not, long after its TTL only
    none        nothing: the lane's policy decides

They show what they show by default. `switched` has each of them show all that an operator may switch on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simulator import ECHOING, Lists
from tests.conformance.samples import UNLIMITED, Sample

QUERY: Final = "query"
WINDOW: Final = "window"
ABSENCE: Final = "absence"
PRESENCE: Final = "presence"
NONE: Final = ""

TTL_MS: Final = 6 * 3_600_000
_CONTEXTS: Final = frozenset({"tencent_sms"})
"""Whose list shows what a call was for only where that is switched on."""
_SWITCHES: Final = {"wecom": "duplicate_check"}
"""Options of an account that stand for a switch at the provider: off by default."""
_LAG: Final = "query_lag_s"
"""Set to nothing in the samples. A fault run goes by the adapter's own."""
_SHORT_MS: Final = 60_000
_SHORT_EACH_MS: Final = 150
"""What a machine with two cores takes for one delivery of every adapter, and some time to spare."""


def proof_of(sample: Sample, *, switched: bool) -> str:
    """What settles a call in doubt that went through this account."""
    if sample.provider in _CONTEXTS:
        return PRESENCE if switched else NONE
    if sample.absence_alone:
        return ABSENCE
    table = account_table(sample, switched=switched)
    account = sample._replace(account_table=table).account(f"{sample.scheme}://127.0.0.1")
    if sample.channel.dedup_window(account):
        return WINDOW
    return QUERY if "resolve" in vars(type(sample.channel)) else NONE


def account_table(sample: Sample, *, switched: bool) -> dict[str, Any]:
    """The sample's account with the adapter's own lag, and without what is to be switched on first."""
    left_out = {_LAG} if switched else {_LAG, _SWITCHES.get(sample.provider, "")}
    return {name: value for name, value in sample.account_table.items() if name not in left_out}


def lists(*, switched: bool) -> Lists:
    """What the providers' lists show."""
    return ECHOING if switched else Lists()


def behaviours() -> Mapping[str, Mapping[str, str]]:
    """Without the providers' limits, which the accounts are free of, too."""
    return UNLIMITED


def life_ms(provider: str, messages: int) -> int:
    """The TTL of what goes through this provider. Where its list cannot say "not sent" within a TTL a doubt
    waits for half of what is left of it, so that it is short."""
    if provider in _CONTEXTS:
        return min(_SHORT_MS + messages * _SHORT_EACH_MS, TTL_MS)
    return TTL_MS


def is_short(provider: str) -> bool:
    """Whether its deliveries have to go before those of others, who have time."""
    return provider in _CONTEXTS
