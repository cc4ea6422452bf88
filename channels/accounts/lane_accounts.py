"""The accounts of one lane by its policy, and the policy's faults about them.

Weights divide deliveries among accounts with common receivers. A reserve replaces an account with common
receivers (channels/accounts/reach.py). A policy that asks for more is refused, with a proposal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from backends.settings import Settings
from channels.accounts.reach import Reach, mixed_up
from channels.channel import Account
from channels.registry import PROVIDERS, AccountError, accounts_for, reach_of, serves
from message.vocabulary import LANES, Lane
from policy.loading import read
from policy.parser import PolicyParser
from policy.problems import Problem
from policy.schema import LanePolicy, Policy

Tables = Mapping[str, Mapping[str, Any]]


def lane_accounts(lane: Lane, tables: Tables, policy: LanePolicy) -> list[Account]:
    """Returns the accounts the lane sends through. Raises AccountError for a policy they do not fit."""
    accounts = accounts_for(lane, tables, policy.account_names)
    reaches = {account.name: account.reach for account in accounts}
    for name, text in _wrong(policy, reaches):
        key = f"accounts.{name}" if name else "accounts"
        raise AccountError(f"policy of lane {lane.name}: {key}: {text}")
    return accounts


def check_accounts(settings: Settings, policy: Policy, path: Path) -> list[Problem]:
    """Returns the faults of the lanes' accounts in the policy file, which must be readable. Needs no
    secret. Raises AccountError for a robot that names no group."""
    page = PolicyParser(str(path), read(path), None)
    places = page.places("accounts")
    tables = settings.accounts
    reach = {name: reach_of(name, table) for name, table in tables.items() if _known(table)}
    found = set()
    for lane in LANES:
        of_lane = policy.of(lane)
        names = [n for n in of_lane.accounts if n in reach and serves(tables[n]["provider"], lane)]
        reaches = {name: reach[name] for name in names}
        for name, text in _wrong(of_lane, reaches):
            place = places[lane.name]
            found.add(page.problem((*place, name) if name else place, text))
    return sorted(found)


def strangers(settings: Settings, policy: Policy, path: Path) -> list[Problem]:
    """Returns the lanes whose accounts are of several companies. One name may be a person in each of them,
    and weights would choose among those persons."""
    page = PolicyParser(str(path), read(path), None)
    places, found = page.places("accounts"), set()
    for lane in LANES:
        names = policy.of(lane).account_names or list(settings.accounts)
        companies = {name: company for name in names if (company := _company(settings, name, lane))}
        if len(set(companies.values())) > 1:
            some = ", ".join(companies)
            text = (
                f"{lane.channel}: {some} are of several companies, and one name may be somebody in each:"
                " name the account in every notification, or only one company's accounts here"
            )
            found.add(page.problem(places[lane.name], text))
    return sorted(found)


def _company(settings: Settings, name: str, lane: Lane) -> str:
    """Returns the company of an account that serves the lane; empty where it names none."""
    table = settings.accounts.get(name, {})
    provider = str(table.get("provider", ""))
    if not serves(provider, lane) or not PROVIDERS[provider].company:
        return ""
    return str(table.get(PROVIDERS[provider].company, ""))


def _known(table: Mapping[str, Any]) -> bool:
    return str(table.get("provider", "")) in PROVIDERS


def _wrong(policy: LanePolicy, reaches: Mapping[str, Reach]) -> Iterator[tuple[str, str]]:
    if isinstance(policy.accounts, dict):
        yield from mixed_up(reaches, policy.accounts)
