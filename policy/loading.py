"""policy.toml: what it may say, and every mistake in it with file, line and key (docs/policy.md).

A lane's policy is its kind's built-in defaults, then `[defaults]`, then `[defaults.KIND]`, then
`[lanes."CHANNEL.KIND"]`; each may set any field, and any field of its inner tables.
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
    """`policy.file`, else policy.toml beside hongyan.toml if it is there, else None."""
    base = Path(settings.base)
    if settings.policy.file:
        return base / settings.policy.file
    default = base / DEFAULT_FILE
    return default if default.is_file() else None


def load_for(settings: Settings) -> Policy:
    """The policy of the file that `settings` names, its accounts checked; raises PolicyError."""
    return load(file_of(settings), settings.accounts)


def load(path: str | Path | None, accounts: Collection[str] | None = None) -> Policy:
    """The policy in `path`, or the defaults for None; raises PolicyError.

    `accounts` are the names that hongyan.toml has; None: they are not checked.
    """
    if path is None:
        return Policy()
    content = read(path)
    return parse(str(path), content, accounts, version=f"file:{digest(content)}")


def parse(
    name: str, content: bytes, accounts: Collection[str] | None = None, *, version: str
) -> Policy:
    """The policy in a text, known as `version`; problems call it `name`. Raises PolicyError."""
    reader = PolicyParser(name, content, accounts)
    lanes = reader.lanes()
    if reader.problems:
        raise PolicyError(sorted(set(reader.problems)))
    return Policy(version=version, lanes=lanes)


def cautions_in(path: str | Path | None) -> list[Problem]:
    """What of a file that can be used somebody should look at. Raises PolicyError if it cannot be read."""
    if path is None:
        return []
    reader = PolicyParser(str(path), read(path), None)
    reader.lanes()
    return sorted(set(reader.cautions))


def read(path: str | Path) -> bytes:
    """A policy file as it is; raises PolicyError."""
    try:
        return Path(path).read_bytes()
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise PolicyError([Problem(str(path), 1, "policy.file", reason)]) from exc


def digest(content: bytes) -> str:
    """The first hex digits of the text's SHA-256."""
    return sha256(content).hexdigest()[:_DIGEST]
