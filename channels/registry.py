"""Providers by name, and accounts from the configuration: all checked at the start."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from typing import Annotated, Any, Final, TypeVar, get_args, get_type_hints

import msgspec
from msgspec.structs import fields

from backends.settings import FileText, SettingsError, no_literal
from backends.toml_text import did_you_mean
from channels.accounts.reach import GroupName, Reach
from channels.channel import Account, Channel
from channels.endpoints import BadEndpoint, endpoint_url
from channels.providers import ADAPTERS
from channels.providers.null import NullChannel
from channels.providers.webhook.adapter import WebhookChannel
from channels.secret import Secret, secret_of
from message.receivers import GROUP
from message.vocabulary import Lane

PROVIDERS: Final[Mapping[str, Channel]] = {
    **{channel.provider: channel for channel in (WebhookChannel(), NullChannel())},
    **ADAPTERS,
}
_EVERY_CHANNEL: Final = "*"
_PART: Final = 10
"""One part in so many of a provider's limit may go at once, the rest evenly."""
_EVEN: Final = 0.9
"""Share that goes evenly of a limit too small for such a part."""
_PLACEHOLDER: Final = "placeholder"
_FIELD = re.compile(r"(?:required|unknown) field `(.+?)`")
T = TypeVar("T", bound=msgspec.Struct)


class AccountError(SettingsError):
    """An account that cannot be used; the text names the account and the key."""


def channel_for(account: Account) -> Channel:
    """Returns the adapter of the account's provider."""
    return PROVIDERS[account.provider]


def load_accounts(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Account]:
    """Returns every account of the configuration by name. Raises AccountError for all faulty ones."""
    accounts, faulty = usable_accounts(tables)
    faults = [text for exc in faulty.values() for text in exc.texts]
    faults += _robots_of_two_groups(accounts.values())
    if faults:
        raise AccountError(*faults)
    return accounts


def usable_accounts(
    tables: Mapping[str, Mapping[str, Any]],
) -> tuple[dict[str, Account], dict[str, AccountError]]:
    """Returns the accounts that can be used, and the faults of the others, by name."""
    accounts: dict[str, Account] = {}
    faulty: dict[str, AccountError] = {}
    for name, table in tables.items():
        try:
            accounts[name] = _account(name, table)
        except AccountError as exc:
            faulty[name] = exc
    return accounts, faulty


def _robots_of_two_groups(accounts: Iterable[Account]) -> Iterator[str]:
    """Yields the fault of each robot under two groups' names: a robot is in one."""
    known: dict[str, Account] = {}
    for account in accounts:
        if account.reach.group is None:
            continue
        first = known.setdefault(account.counted, account)
        if first.reach.group != account.reach.group:
            yield (
                f"accounts.{account.name}.group: {first.name} is the same robot and names another group;"
                " a robot is in one group: give both accounts its name"
            )


def accounts_for(
    lane: Lane, tables: Mapping[str, Mapping[str, Any]], names: Sequence[str] = ()
) -> list[Account]:
    """Returns a lane's accounts: those its policy names, else all of its channel. Raises AccountError."""
    accounts = load_accounts(tables)
    if names:
        return [_named(lane, accounts, name) for name in dict.fromkeys(names)]
    return [account for account in accounts.values() if serves(account.provider, lane)]


def _named(lane: Lane, accounts: Mapping[str, Account], name: str) -> Account:
    if name not in accounts:
        raise AccountError(
            f"policy of lane {lane.name}: accounts: there is no account {name!r}; "
            f"hongyan.toml has {_listed(accounts)}"
        )
    account = accounts[name]
    if not serves(account.provider, lane):
        raise AccountError(
            f"policy of lane {lane.name}: accounts: {name!r} is of provider {account.provider}, "
            f"which does not serve {lane.channel}"
        )
    return account


def serves(provider: str, lane: Lane) -> bool:
    """Returns whether the provider sends over the lane's channel; False for an unknown one."""
    known = PROVIDERS.get(provider)
    return known is not None and known.channel in (_EVERY_CHANNEL, lane.channel)


def reach_of(name: str, table: Mapping[str, Any]) -> Reach:
    """Returns the reach of an account with a known provider; needs no secret. Raises AccountError for a
    robot without a group."""
    channel = PROVIDERS[str(table["provider"])]
    if channel.reach.group is None:
        return channel.reach
    given = {key: table[key] for key in table if key == _GROUP}
    return _reach(name, channel.reach, _converted(name, given, _Robot).group)


def account_without_secrets(name: str, table: Mapping[str, Any]) -> Account | None:
    """Returns the account with a placeholder for each secret that is not given, so that its adapter can be
    asked what it refuses; None if it cannot be made without them, or is faulty."""
    known = PROVIDERS.get(str(table.get("provider", "")))
    if known is None:
        return None
    needed = {f.encode_name for f in fields(known.options) if f.type is Secret and f.required}
    try:
        return _account(name, dict.fromkeys(needed - table.keys(), _PLACEHOLDER) | dict(table))
    except AccountError:
        return None


def _account(name: str, table: Mapping[str, Any]) -> Account:
    provider = str(table.get("provider", ""))
    if provider not in PROVIDERS:
        fault = f"unknown provider {provider!r}" if provider else "is missing"
        hint = did_you_mean(provider, PROVIDERS) or f"; known are {_listed(PROVIDERS)}"
        raise AccountError(f"accounts.{name}.provider: {fault}{hint}")
    channel = PROVIDERS[provider]
    endpoint = table.get("endpoint", channel.endpoint)
    endpoint = str(endpoint) if isinstance(endpoint, FileText) else endpoint
    if provider != NullChannel.provider:
        _check_endpoint(name, channel, endpoint)
    own = {key: value for key, value in table.items() if key not in _COMMON}
    common = _converted(name, {key: table[key] for key in _COMMON if key in table}, _Common)
    rate_per_s, burst = _rate(common, channel)
    options = _converted(name, own, channel.options)
    counted_as = _counted_as(provider, str(endpoint), options, channel, common.counted_as)
    return Account(
        name,
        provider,
        str(endpoint),
        options,
        common.ca_file,
        rate_per_s,
        burst,
        counted_as,
        _reach(name, channel.reach, getattr(options, _GROUP, "")),
        counted_as if common.rate_per_s is None else "",
    )


def _reach(name: str, reach: Reach, group: str) -> Reach:
    if reach.group is None:
        return reach
    if group.startswith(GROUP):
        raise AccountError(
            f"accounts.{name}.group: begins with {GROUP}; write the name alone, as in"
            f' group = "{group.removeprefix(GROUP) or "NAME"}"'
        )
    return msgspec.structs.replace(reach, group=group)


def _counted_as(
    provider: str, endpoint: str, options: Any, channel: Channel, given: str | None
) -> str:
    """Returns a digest, since its source may be a secret; empty where each account is counted alone."""
    if given is not None:
        return _digest(provider, "counted_as", given)
    if not channel.counted_by:
        return ""
    values = [getattr(options, field) for field in channel.counted_by]
    texts = [v.reveal() if isinstance(v, Secret) else str(v) for v in values]
    return _digest(provider, endpoint, *texts)


def _digest(*texts: str) -> str:
    return sha256("\x1f".join(texts).encode()).hexdigest()[:32]


def _rate(common: _Common, channel: Channel) -> tuple[float | None, int | None]:
    """Returns the account's own rate and burst, else those of its provider's limits. There the burst, and a
    tenth of it that workers hold, count within the provider's window. A burst of one is even spacing."""
    if common.rate_per_s is not None or not channel.account_limits:
        return common.rate_per_s, common.burst
    bursts = [max(1, count // _PART) for count, _ in channel.account_limits]
    limits = zip(channel.account_limits, bursts, strict=True)
    rates = [_evenly(count, burst) / seconds for (count, seconds), burst in limits]
    return min(rates), min(bursts)


def _evenly(count: int, burst: int) -> float:
    """Returns how many messages of a limit go evenly beside the burst."""
    return _EVEN * count if burst == 1 else count - burst - burst // _PART


class _Common(msgspec.Struct):
    """Settings that every account may have."""

    provider: str
    endpoint: str = ""
    ca_file: str = ""
    rate_per_s: Annotated[float, msgspec.Meta(gt=0, le=1e6)] | None = None
    burst: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)] | None = None
    counted_as: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None


class _Robot(msgspec.Struct):
    """The option of a robot's account that names its group."""

    group: GroupName


_GROUP: Final = "group"
_COMMON: Final = frozenset(_Common.__struct_fields__)


def _check_endpoint(name: str, channel: Channel, endpoint: object) -> None:
    try:
        endpoint_url(endpoint if isinstance(endpoint, str) else "", channel.schemes)
    except BadEndpoint as exc:
        raise AccountError(f"accounts.{name}.endpoint: {exc}") from exc


def _converted(name: str, table: Mapping[str, Any], wanted: type[T]) -> T:
    """Returns the table as a struct. Raises AccountError with the key, never with a secret's text."""
    if literal := literal_secret(("accounts", name), table, wanted):
        raise AccountError(literal)
    try:
        return msgspec.convert(plain(table), wanted, strict=False, dec_hook=secret_of)
    except msgspec.ValidationError as exc:
        text, _, where = str(exc).partition(" - at `$.")
        key = where.rstrip("`")
        if missing := _FIELD.search(text):
            key = f"{key}.{missing[1]}".lstrip(".")
            known = _listed(wanted.__struct_fields__)
            absent = "missing" in text
            text = f"unknown key; known are {known}"
            text = f"is missing{_said_of(wanted, missing[1])}" if absent else text
        shown = f"accounts.{name}.{key}" if key else f"accounts.{name}"
        raise AccountError(f"{shown}: {text[:1].lower()}{text[1:].replace('`', '')}") from exc


def _said_of(wanted: type[msgspec.Struct], key: str) -> str:
    """Returns the description of an option, behind a semicolon; empty where it has none."""
    hint = get_type_hints(wanted, include_extras=True)[key]
    metas = [one for one in get_args(hint) if isinstance(one, msgspec.Meta)]
    return next((f"; {meta.description}" for meta in metas if meta.description), "")


def literal_secret(
    path: tuple[str, ...], table: Mapping[str, Any], wanted: type[msgspec.Struct]
) -> str:
    """Returns the fault of a secret that is given in hongyan.toml itself; empty: none is."""
    secrets = secret_options(wanted)
    found = next((k for k in secrets if isinstance(table.get(k), FileText) and table[k]), "")
    return f"{'.'.join((*path, found))}: {no_literal((*path, found))}" if found else ""


@cache  # msgspec evaluates every annotation each time
def secret_options(wanted: type[msgspec.Struct]) -> frozenset[str]:
    """Returns the names of the options that are secret."""
    return frozenset(f.encode_name for f in fields(wanted) if Secret in (f.type, *get_args(f.type)))


def plain(table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the table with ordinary texts, which encoders take."""
    return {key: str(one) if isinstance(one, FileText) else one for key, one in table.items()}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
