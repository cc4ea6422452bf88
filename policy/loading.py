"""Loads policy.toml; reports every problem with file, line and key (docs/policy.md).

A lane's policy is its kind's built-in defaults, then `[defaults]`, then `[defaults.KIND]`, then
`[lanes."sms.*"]`, then `[lanes."sms.notice"]`; each may set any field, and any field of its inner tables.
"""

from __future__ import annotations

from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Final

from backends.settings import Settings
from policy.parser import PolicyParser
from policy.problems import PolicyError as PolicyError
from policy.problems import Problem as Problem
from policy.schema import Policy

DEFAULT_FILE: Final = "policy.toml"
_DIGEST: Final = 12


def file_of(settings: Settings) -> Path | None:
    """Returns `policy.file`, else policy.toml beside hongyan.toml if it is there, else None."""
    base = Path(settings.base)
    if settings.policy.file:
        return base / settings.policy.file
    default = base / DEFAULT_FILE
    return default if default.is_file() else None


def load_for(settings: Settings) -> Policy:
    """Returns the policy of the file that `settings` names; checks its accounts. Raises PolicyError."""
    return load(file_of(settings), settings.accounts)


def load(path: str | Path | None, accounts: Collection[str] | None = None) -> Policy:
    """Returns the policy in `path`; the defaults for None. Raises PolicyError.

    `accounts` are the names that hongyan.toml has; None: they are not checked.
    """
    if path is None:
        return Policy()
    content = read(path)
    return parse(str(path), content, accounts, version=f"file:{digest(content)}")


def parse(
    name: str, content: bytes, accounts: Collection[str] | None = None, *, version: str
) -> Policy:
    """Returns the policy in a text, known as `version`; problems call it `name`. Raises PolicyError."""
    reader = PolicyParser(name, content, accounts)
    lanes = reader.lanes()
    if reader.problems:
        raise PolicyError(sorted(set(reader.problems)))
    return Policy(version=version, lanes=lanes)


def cautions_in(path: str | Path | None) -> list[Problem]:
    """Returns the valid values that a person should check. Raises PolicyError for an unreadable file."""
    if path is None:
        return []
    reader = PolicyParser(str(path), read(path), None)
    reader.lanes()
    return sorted(set(reader.cautions))


def read(path: str | Path) -> bytes:
    """Returns a policy file's bytes. Raises PolicyError."""
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise PolicyError([Problem(str(path), 1, "policy.file", reason)]) from exc


def digest(content: bytes) -> str:
    """Returns the first hex digits of the text's SHA-256."""
    return sha256(content).hexdigest()[:_DIGEST]
