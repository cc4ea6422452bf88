"""Finds the policy in force: the newest applied version, else the file's, else the built-in defaults."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from backends.settings import Settings
from policy.loading import file_of, load_for, parse, read
from policy.schema import Policy
from policy.versions import Version, Versions


class ActivePolicy(NamedTuple):
    """The policy in force and its source."""

    policy: Policy
    number: int
    """Number of the applied version; 0: none was ever applied."""
    text: str
    """Its source text; empty for the built-in defaults."""
    file_differs: bool
    """Whether the file differs from the applied version and so has no effect."""


def in_force(settings: Settings, versions: Versions) -> ActivePolicy:
    """Returns the policy in force. Raises PolicyError, even for a file that has no effect, and SqlError."""
    of_file = load_for(settings)
    path = file_of(settings)
    text = read(path).decode() if path is not None else ""
    newest = versions.newest()
    if newest is None:
        return ActivePolicy(of_file, 0, text, False)
    policy = policy_of(newest, settings.accounts)
    return ActivePolicy(
        policy, newest.number, newest.text, path is not None and text != newest.text
    )


def policy_of(version: Version, accounts: Collection[str] | None) -> Policy:
    """Returns the policy of an applied version. Raises PolicyError, whose problems name the version."""
    return parse(version.name, version.text.encode(), accounts, version=version.name)
