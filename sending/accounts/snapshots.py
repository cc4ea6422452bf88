"""The accounts of one process, as its heartbeat shows them."""

from __future__ import annotations

from channels.tokens.contract import Tokens
from idempotency.fleet.snapshots import AccountSnapshot
from sending.accounts.limits import SendLimits

_DIGITS = 1


def account_snapshots(limits: SendLimits, tokens: Tokens) -> dict[str, AccountSnapshot]:
    """Returns each account of the process's lanes. Asks nothing outside of the process."""
    breakers: dict[str, int] = {}
    for selector in tuple(limits.accounts.values()):  # `follow` may add one
        for name, state in selector.states().items():
            breakers[name] = max(breakers.get(name, 0), int(state))
    rates, lives, held = limits.rates, tokens.lives(), limits.held.names
    refused = {*tokens.refused_logins(), *rates.refused_logins()}
    now = limits.clock.monotonic()
    found = {}
    for name, breaker in breakers.items():
        life = lives.get(name)
        found[name] = AccountSnapshot(
            breaker=breaker,
            rate=round(rates.meter(name).per_s(now), _DIGITS),
            limit=rates.rate_of(name),
            shut_s=round(rates.shut_s(name), _DIGITS),
            token_age_s=None if life is None else int(life.age_s),
            token_left_s=None if life is None else int(life.left_s),
            paused=name in held,
            login_refused=name in refused,
        )
    return found
