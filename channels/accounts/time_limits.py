"""Time limits of a provider call, by the protocol that its provider speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from channels.channel import Account
from channels.smtp_client.mail_request import SCHEMES
from policy.schema import LanePolicy

_MS: Final = 1_000
STEPS: Final = ("connect", "greeting", "command", "data", "final")
"""Steps of a mail dialogue; `policy.schema.SmtpPolicy` explains each."""


class Limits(NamedTuple):
    """Limits of one call, in seconds."""

    total: float
    steps: Mapping[str, float] | None = None
    """By STEPS, for a dialogue; None: `total` covers all."""


def limits_of(account: Account, policy: LanePolicy) -> Limits:
    """Returns the limits of a call through this account in a lane of this policy."""
    if account.endpoint.partition(":")[0] not in SCHEMES:
        return Limits(policy.timeout_ms / _MS)
    steps = {name: getattr(policy.smtp, f"{name}_ms") / _MS for name in STEPS}
    return Limits(policy.smtp.total_ms / _MS, steps)
