"""Providers by name, and accounts from the configuration: checked at start, so that none fails later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from backends.settings import SettingsError
from channels.channel import Account, Channel
from channels.endpoints import BadEndpoint, endpoint_url
from channels.null import NullChannel
from channels.secret import Secret
from channels.webhook import WebhookChannel
from message.vocabulary import Lane

PROVIDERS: Final[Mapping[str, Channel]] = {
    channel.provider: channel for channel in (WebhookChannel(), NullChannel())
}
_EVERY_CHANNEL: Final = "*"
_SECRETS: Final = frozenset({"token", "secret", "password"})


class AccountError(SettingsError):
    """An account that cannot be used; the text names the account and the key."""


def channel_for(account: Account) -> Channel:
    """The adapter of the account's provider."""
    return PROVIDERS[account.provider]


def load_accounts(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Account]:
    """Every account of the configuration by name; raises AccountError for the first that is wrong."""
    return {name: _account(name, table) for name, table in tables.items()}


def accounts_for(
    lane: Lane, tables: Mapping[str, Mapping[str, Any]], names: Sequence[str] = ()
) -> list[Account]:
    """The accounts a lane sends through: those its policy names, else all that serve its channel."""
    accounts = load_accounts(tables)
    if names:
        return [_named(lane, accounts, name) for name in dict.fromkeys(names)]
    return [account for account in accounts.values() if _serves(account, lane)]


def _named(lane: Lane, accounts: Mapping[str, Account], name: str) -> Account:
    if name not in accounts:
        raise AccountError(
            f"policy of lane {lane.name}: accounts: there is no account {name!r}; "
            f"hongyan.toml has {_listed(accounts)}"
        )
    account = accounts[name]
    if not _serves(account, lane):
        raise AccountError(
            f"policy of lane {lane.name}: accounts: {name!r} is of provider {account.provider}, "
            f"which does not serve {lane.channel}"
        )
    return account


def _serves(account: Account, lane: Lane) -> bool:
    return PROVIDERS[account.provider].channel in (_EVERY_CHANNEL, lane.channel)


def _account(name: str, table: Mapping[str, Any]) -> Account:
    provider, endpoint = str(table.get("provider", "")), table.get("endpoint", "")
    if provider not in PROVIDERS:
        said = f"unknown provider {provider!r}" if provider else "is missing"
        raise AccountError(f"accounts.{name}.provider: {said}; known are {_listed(PROVIDERS)}")
    if provider != NullChannel.provider:
        _check_endpoint(name, endpoint)
    options = {key: value for key, value in table.items() if key not in ("provider", "endpoint")}
    return Account(name, provider, str(endpoint), _options(name, options))


def _check_endpoint(name: str, endpoint: object) -> None:
    try:
        endpoint_url(endpoint if isinstance(endpoint, str) else "")
    except BadEndpoint as exc:
        raise AccountError(f"accounts.{name}.endpoint: {exc}") from exc


def _options(name: str, table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _wrapped(name, key, value) for key, value in table.items()}


def _wrapped(name: str, key: str, value: object) -> object:
    if key not in _SECRETS:
        return value
    if not isinstance(value, str) or not value or not value.isprintable() or not value.isascii():
        raise AccountError(f"accounts.{name}.{key}: must be a text of printable ASCII characters")
    return Secret(value)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"
