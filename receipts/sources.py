"""Accounts that take receipts, and the secrets to check them: `[receipts.accounts.NAME]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from backends.settings import Settings, SettingsError
from channels.channel import Account
from channels.registry import literal_secret, load_accounts, plain
from channels.secret import secret_of
from receipts.parsers import PARSERS
from receipts.pull_sources import PULLS
from receipts.push import Parser

_PULL: Final = "pull"


class ReceiptSource(msgspec.Struct, frozen=True):
    """One account whose provider reports to us."""

    account: Account
    parser: Parser | None = None
    """None: nothing is pushed."""
    options: Any = None
    pull: bool = False
    """Its provider is asked again and again."""


def load_sources(settings: Settings) -> dict[str, ReceiptSource]:
    """Returns every source by its account's name. Raises SettingsError with the key, never a secret."""
    accounts = load_accounts(settings.accounts)
    tables = settings.receipts.accounts
    if not tables:
        raise SettingsError("receipts.accounts: name the accounts whose providers report here")
    return {name: _source(name, table, accounts) for name, table in tables.items()}


def _source(name: str, table: Mapping[str, Any], accounts: Mapping[str, Account]) -> ReceiptSource:
    where = f"receipts.accounts.{name}"
    if name not in accounts:
        raise SettingsError(f"{where}: there is no account of this name in [accounts]")
    account, keys = accounts[name], dict(table)
    pull = _flag(where, keys.pop(_PULL, False))
    if pull and account.provider not in PULLS:
        raise SettingsError(f"{where}.pull: only {', '.join(sorted(PULLS))} can be asked")
    if pull and not keys:
        return ReceiptSource(account, pull=True)
    parser = PARSERS.get(account.provider)
    if parser is None:
        known = ", ".join(sorted(PARSERS))
        raise SettingsError(f"{where}: {account.provider} sends no receipts; those of {known} do")
    return ReceiptSource(account, parser, _options(where, parser, keys), pull)


def _flag(where: str, value: object) -> bool:
    """Returns the flag; the environment writes flags as text. Raises SettingsError."""
    if value in (True, "true", "1"):
        return True
    if value in (False, "false", "0"):
        return False
    raise SettingsError(f"{where}.pull: must be true or false")


def _options(where: str, parser: Parser, keys: dict[str, Any]) -> Any:
    if literal := literal_secret(tuple(where.split(".", 2)), keys, parser.options):
        raise SettingsError(literal)
    try:
        return msgspec.convert(plain(keys), parser.options, strict=False, dec_hook=secret_of)
    except msgspec.ValidationError as exc:
        text, _, key = str(exc).partition(" - at `$")
        named = f"{where}{key.rstrip('`')}"
        raise SettingsError(f"{named}: {text[:1].lower()}{text[1:].replace('`', '')}") from exc
