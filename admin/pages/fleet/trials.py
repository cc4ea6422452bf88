"""`/accounts/NAME/test`: one real message through an account, with its exchange, secrets masked.

The page of a template sends its test by `trial_page`, too.
The receiver is typed, used once, and masked wherever it is shown or kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from litestar import post
from litestar.params import FromPath

from admin.access import OF_ROW, Person, Role, needs
from admin.pages.fleet.accounts import AccountRow, account_row, found, test_lanes
from admin.pages.fleet.followed import PolicyFollower, lanes_of
from admin.pages.templates.draft import templates_now
from admin.parts import ConsoleParts
from admin.web.forms import SentForm, WrongForm
from admin.web.given import GivenForm, GivenParts, GivenPerson, GivenView
from admin.web.view import Page, View
from backends.settings import SettingsError
from channels.accounts.time_limits import Limits, limits_of
from channels.channel import Account, Channel
from channels.probe.probe import Trial
from channels.probe.redaction import Masks, Shown
from channels.probe.trial import trial_delivery, tried
from channels.providers.null import NullChannel
from channels.registry import channel_for, load_accounts
from message.delivery import Delivery
from message.envelope import EnvelopeError
from message.outcomes import Accepted, NotSent, Rejected
from message.reasons import code_of
from message.vocabulary import lane_named
from policy.templates.templates import TemplateError
from tracing.masks import mask

LONGEST_S: Final = 20.0
"""Longest time for each request: a person waits."""
_LONGEST_RECEIVER: Final = 256


class TrialShown(NamedTuple):
    """The result of a test send; nothing in it is secret."""

    outcome: str
    """accepted, rejected, not_sent, unknown; refused: the adapter sent nothing."""
    code: str
    detail: str
    receiver: str
    exchanges: list[tuple[Shown, str, str]]
    """Each with the texts of its request and its answer."""


class TrialWay(NamedTuple):
    """An account, and a lane of it under whose limits a test send may go."""

    account: str
    provider: str
    lane: str


class TrialOrder(NamedTuple):
    """A test send that somebody asked for."""

    row: AccountRow
    lane: str
    """The lane whose limits apply."""
    body: Mapping[str, Any]
    """Template or content, as an envelope has them."""
    named: str = ""
    """The template that the person tests; empty: the account itself."""


@post(
    "/accounts/{account:str}/test",
    opt=needs(Role.OPERATOR, OF_ROW),
    status_code=200,
    sync_to_thread=True,
)
def trial(
    view: GivenView,
    parts: GivenParts,
    person: GivenPerson,
    form: GivenForm,
    account: FromPath[str],
) -> Page:
    """Sends the message and shows the exchange. Its row in the audit comes first. Raises Missing,
    Forbidden, WrongForm."""
    row = found(parts, person, account)
    order = TrialOrder(row, form.required("lane"), _body(row.channel, form))
    return trial_page(view, parts, person, form, order)


def trial_page(
    view: View, parts: ConsoleParts, person: Person, form: SentForm, order: TrialOrder
) -> Page:
    """Sends one real message to the form's receiver, for its reason, and returns the page with the
    exchange. Its row in the audit comes first. Raises Forbidden, WrongForm."""
    row, reason = order.row, form.reason()
    _check_lane(order, person)
    login = _login(parts, row.name)
    channel = channel_for(login)
    receiver = form.required("receiver")
    if len(receiver) > _LONGEST_RECEIVER:
        raise WrongForm("frame.field_long", "receiver")
    delivery = _delivery(parts, login, channel, receiver, order.body)
    masked = mask(channel.channel, delivery.receiver)
    subject = f"{order.named} by {row.name}" if order.named else row.name
    parts.journal.record_alone(
        person=person.name,
        action="account.test",
        subject=f"{subject} to {masked}",
        lane=order.lane,
        reason=reason,
        address=view.address,
    )
    shown = _tried(parts, login, channel, delivery, order.lane, masked)
    return view.page("fleet/trial.html", order=order, shown=shown)


def trial_ways(parts: ConsoleParts, person: Person, channel: str) -> list[TrialWay]:
    """Returns the ways by which the person may send a test over a channel. Raises LedgerError."""
    tables, policy = parts.settings.accounts, PolicyFollower(parts).now()
    ways = []
    for name, table in sorted(tables.items()):
        row = account_row(name, table, lanes_of(name, policy, tables), [], [], [], 0)
        if row.channel == channel and row.provider != NullChannel.provider:
            lanes = person.among(test_lanes(row), Role.OPERATOR)
            ways += [TrialWay(name, row.provider, lane) for lane in lanes]
    return ways


def _check_lane(order: TrialOrder, person: Person) -> None:
    """Raises WrongForm for a lane that the account does not serve, and Forbidden."""
    if order.lane not in test_lanes(order.row):
        raise WrongForm("fleet.no_lane", "lane")
    person.require(Role.OPERATOR, order.lane)


def _login(parts: ConsoleParts, name: str) -> Account:
    """Returns the account with its secrets. Raises WrongForm if the console may not read them."""
    tables = parts.settings.accounts
    try:
        login = load_accounts({name: tables[name]})[name]
    except SettingsError as exc:
        raise WrongForm("accounts.not_readable", "account", cause=str(exc)) from exc
    if login.provider == NullChannel.provider:
        raise WrongForm("accounts.is_null", "account")
    return login


def _delivery(
    parts: ConsoleParts, login: Account, channel: Channel, receiver: str, body: Mapping[str, Any]
) -> Delivery:
    templates = templates_now(parts).templates
    try:
        return trial_delivery(templates, login, channel.channel, receiver, dict(body))
    except (EnvelopeError, TemplateError) as exc:
        cause = str(exc).replace(receiver, mask(channel.channel, receiver))
        raise WrongForm("accounts.not_sendable", "text", cause=cause) from exc


def _body(channel: str, form: SentForm) -> dict[str, Any]:
    """Returns the template with its parameters, or the text as the channel's shortest content. Raises
    WrongForm."""
    template = form.text("template")
    if not template:
        mail = {"subject": form.text("subject") or "Hongyan"} if channel == "email" else {}
        return {"content": {**mail, "text": form.required("text")}}
    params = {}
    for line in form.text("params").splitlines():
        name, equals, value = line.partition("=")
        if line.strip() and not (equals and name.strip()):
            raise WrongForm("accounts.bad_params", "params")
        if line.strip():
            params[name.strip()] = value.strip()
    return {"template": {"id": template, "params": params}}


def _tried(
    parts: ConsoleParts,
    login: Account,
    channel: Channel,
    delivery: Delivery,
    lane: str,
    masked: str,
) -> TrialShown:
    if refusal := channel.refusal(login, delivery):
        detail = refusal.partition(": ")[2].replace(delivery.receiver, masked)
        return TrialShown("refused", code_of(refusal), detail, masked, [])
    made = tried(channel, login, delivery, _limits(parts, login, lane))
    masks = Masks(login, made.tokens, delivery.receiver, masked)
    outcome = made.outcome
    code = outcome.provider_id if isinstance(outcome, Accepted) else outcome.code
    detail = "" if isinstance(outcome, Accepted) else outcome.detail
    return TrialShown(
        _word(made),
        masks.text(code or ""),
        masks.text(detail),
        masked,
        [_texts(masks.exchange(one)) for one in made.exchanges],
    )


def _limits(parts: ConsoleParts, login: Account, lane: str) -> Limits:
    """Returns the lane's limits, and LONGEST_S at most."""
    named, policy = lane_named(lane), PolicyFollower(parts).now().policy
    if named is None or policy is None:
        return Limits(LONGEST_S)
    limits = limits_of(login, policy.of(named))
    return limits._replace(total=min(limits.total, LONGEST_S))


def _word(made: Trial) -> str:
    words = {Accepted: "accepted", Rejected: "rejected", NotSent: "not_sent"}
    return words.get(type(made.outcome), "unknown")


def _texts(shown: Shown) -> tuple[Shown, str, str]:
    asked = _text(shown.headers, shown.body)
    return shown, asked, _text(shown.answer_headers, shown.answer_body)


def _text(headers: list[tuple[str, str]], body: Any) -> str:
    head = "\n".join(f"{name}: {value}" for name, value in headers)
    if body is None:
        return head
    if isinstance(body, str):
        return f"{head}\n\n{body}"
    if isinstance(body, list) and all(isinstance(pair, tuple) for pair in body):
        return f"{head}\n\n" + "\n".join(f"{name} = {value}" for name, value in body)
    return f"{head}\n\n{json.dumps(body, ensure_ascii=False, indent=2)}"


HANDLERS = [trial]
