"""Secrets that hongyan.toml itself holds. They are refused, unless it says `allow_literal_secrets`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from backends.environment import ACCOUNTS, KeyPath, variable_of
from backends.url_passwords import has_password

ALLOWING: Final = "allow_literal_secrets"
_CHECKS: Final = "checks"


class FileText(str):
    """A text from hongyan.toml itself, which may hold no secret."""


def no_literal(path: KeyPath) -> str:
    """Returns the error text for a secret in the file."""
    key = f'"{path[-1]}_file"' if "." in path[-1] else f"{path[-1]}_file"
    return (
        f'a secret must not be in the file; write {key} = "/path", or set {variable_of(path)}'
        f" (to try things out: {ALLOWING} = true at the top)"
    )


def literals(
    data: Mapping[str, Any], keys: Collection[KeyPath], logins: Collection[KeyPath]
) -> list[tuple[KeyPath, str]]:
    """Returns the secrets at `keys`, and the passwords in the URLs at `logins`: (key, error text)."""
    found = [(key, no_literal(key)) for key in keys if _text_at(data, key)]
    urls = [key for key in logins if has_password(_text_at(data, key))]
    return found + [(key, f"holds a password; {no_literal(key)}") for key in urls]


def mark(data: Mapping[str, Any]) -> None:
    """Marks the texts of accounts and of look-back's checks: who reads them knows which are secret."""
    for account in _accounts(data):
        texts = {key: one for key, one in account.items() if isinstance(one, str)}
        account |= {key: FileText(text) for key, text in texts.items()}


def unmark(data: Mapping[str, Any]) -> None:
    """Takes the marks away."""
    for account in _accounts(data):
        texts = {key: one for key, one in account.items() if isinstance(one, FileText)}
        account |= {key: str(text) for key, text in texts.items()}


def _text_at(data: Mapping[str, Any], path: KeyPath) -> str:
    """Returns the text at this path; empty: there is none."""
    found: Any = data
    for part in path:
        found = found.get(part) if isinstance(found, dict) else None
    return found if isinstance(found, str) else ""


def _accounts(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    places = ((data, ACCOUNTS), (data.get("receipts"), ACCOUNTS), (data.get("lookback"), _CHECKS))
    for around, key in places:
        accounts = around.get(key) if isinstance(around, Mapping) else None
        tables = accounts.values() if isinstance(accounts, dict) else ()
        found += [table for table in tables if isinstance(table, dict)]
    return found
