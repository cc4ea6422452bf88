"""The test send of `hongyan accounts test`: its account, body and time limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hongyan.errors import WrongUsage
from hongyan.flags import body_fields

if TYPE_CHECKING:
    from backends.settings import Settings
    from channels.accounts.time_limits import Limits
    from channels.channel import Account, Channel


def account_named(settings: Settings, name: str) -> Account:
    """Returns the account of that name. Raises WrongUsage if it is unknown or of provider null."""
    from channels.providers.null import NullChannel
    from channels.registry import load_accounts

    accounts = load_accounts(settings.accounts)
    if name not in accounts:
        known = ", ".join(sorted(accounts)) or "none"
        raise WrongUsage(f"there is no account {name!r}; hongyan.toml has {known}")
    if accounts[name].provider == NullChannel.provider:
        raise WrongUsage(f"account {name} is of provider null, which sends nothing")
    return accounts[name]


def body_of(
    channel: str,
    template: str | None,
    param: list[str] | None,
    text: str | None,
    subject: str | None,
    content: str | None,
) -> dict[str, Any]:
    """Returns template or content; `--text` becomes the channel's shortest content. Raises WrongUsage."""
    if text is None:
        if subject is not None:
            raise WrongUsage("--subject goes with --text")
        return body_fields(template, param, content)
    if template is not None or content is not None or param:
        raise WrongUsage("give one of --text, --template and --content")
    if channel in ("wechat_official", "wechat_mini"):
        raise WrongUsage(f"channel {channel} sends templates alone; give --template and --param")
    mail = {"subject": subject or "A test of Hongyan"} if channel == "email" else {}
    if subject is not None and not mail:
        raise WrongUsage(f"--subject is for e-mail; this account's channel is {channel}")
    return {"content": {**mail, "text": text}}


def limits_for(
    settings: Settings, channel: Channel, account: Account, kind: str, timeout_s: float | None
) -> Limits:
    """Returns the lane's time limits, or `timeout_s` if given. Raises WrongUsage for an unknown kind."""
    from channels.accounts.time_limits import Limits, limits_of
    from hongyan.policy_source import policy_in_force
    from message.vocabulary import KINDS, lane_named

    lane = lane_named(f"{channel.channel}.{kind}")
    if lane is None:
        raise WrongUsage(f"there is no kind {kind!r}; kinds are {', '.join(KINDS)}")
    if timeout_s is not None:
        return Limits(timeout_s)
    return limits_of(account, policy_in_force(settings).of(lane))
