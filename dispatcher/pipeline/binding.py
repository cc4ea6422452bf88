"""Binds a delivery to a configuration and an account; intake does both before the claim."""

from __future__ import annotations

from channels.channel import Account, Channel
from dispatcher.pipeline.lane_config import LaneConfig
from dispatcher.pipeline.work import ENDS_AT_CLAIM, Work, ended_by
from sending.accounts.selector import Refuses
from sending.adapter_refusals import refusal_of
from sending.lane_routes import Route


def bind(work: Work, terms: LaneConfig) -> None:
    """Binds the delivery to this configuration. A delivery that names an account without a route in it is
    parked at its claim."""
    if work.terms is terms:
        return
    former, work.terms = work.terms, terms
    if former is None:
        return
    delivery, notification = work.delivery, work.delivery.notification
    delivery.policy_version = terms.version
    delivery.expires_at = notification.created_at + terms.policy.lifetime_ms(notification.ttl_ms)
    if type(work.intent) not in ENDS_AT_CLAIM and (reason := terms.misfit(notification)):
        work.intent = ended_by(reason)


def choose(work: Work, terms: LaneConfig) -> Route | None:
    """Returns the account that the notification names, else one of the lane's, by weight; None if none may
    take it now. A delivery that ends at its claim gets any account."""
    accounts = terms.accounts
    if type(work.intent) in ENDS_AT_CLAIM:
        account = accounts.any_account()
    else:
        account = accounts.choose(work.delivery, _refuses(work, terms) if terms.several else None)
    return None if account is None else terms.routes[account.name]


def waits_for(work: Work, terms: LaneConfig) -> tuple[str, ...]:
    """Returns the only accounts that may send the delivery; empty if any may, and if it ends at its
    claim."""
    if type(work.intent) in ENDS_AT_CLAIM:
        return ()
    if work.waits_for is None or work.waits_for[0] is not terms:
        refuses = _refuses(work, terms) if terms.several else None
        work.waits_for = terms, terms.accounts.restricted_to(work.delivery, refuses)
    return work.waits_for[1]


def refusal_by(work: Work, account: Account, channel: Channel) -> str:
    """Returns as `refusal_of`; keeps the last answer on the work."""
    if work.asked is None or work.asked[0] != account.name:
        work.asked = account.name, refusal_of(work.delivery, account, channel)
    return work.asked[1]


def _refuses(work: Work, terms: LaneConfig) -> Refuses:
    return lambda account: bool(refusal_by(work, *terms.routes[account.name]))
