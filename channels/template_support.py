"""Templates and accounts: the providers a template may name, and the accounts that cannot send it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from channels.channel import Account
from channels.registry import PROVIDERS
from message.vocabulary import Lane
from policy.templates.provider_forms import Taker, Takers
from policy.templates.templates import DeclaredTemplate

TEMPLATE_SUPPORT: Final[Takers] = {
    name: Taker(channel.channel, channel.knows_templates, channel.takes_contents)
    for name, channel in PROVIDERS.items()
}
"""Input of the parser of templates.toml."""


class TemplateGap(NamedTuple):
    """Accounts without a form in the template, and the lanes that send through them."""

    template: DeclaredTemplate
    lanes: Sequence[Lane]
    without: Sequence[Account]
    through: Sequence[Account]
    """The other accounts, which can send it."""

    @property
    def says(self) -> str:
        """One sentence, without the names of the template and the lanes."""
        if not self.through:
            return f"nothing for {_named(self.without)}, and there is no other account"
        if not self.template.providers:
            # The selector looks at forms only for templates with `providers`.
            return f"nothing for {_named(self.without)}: what goes there is refused"
        others = ", ".join(account.name for account in self.through)
        return f"nothing for {_named(self.without)}: it goes through {others} alone"

    def __str__(self) -> str:
        return f"{self.template.name}: {', '.join(lane.name for lane in self.lanes)}: {self.says}"


def gaps(
    templates: Iterable[DeclaredTemplate], lanes: Mapping[Lane, Sequence[Account]]
) -> Iterator[TemplateGap]:
    """Yields the gaps of the templates in the lanes, which are given with their accounts."""
    for template in templates:
        found: dict[str, TemplateGap] = {}
        for lane, accounts in lanes.items():
            fit = [account for account in accounts if _sends(account, template)]
            if lane.channel == template.channel and len(fit) < len(accounts):
                gap = TemplateGap(template, [lane], [a for a in accounts if a not in fit], fit)
                also = found.get(gap.says, gap)
                found[gap.says] = gap if also is gap else also._replace(lanes=[*also.lanes, lane])
        yield from found.values()


def unsendable(template: DeclaredTemplate, accounts: Iterable[Account]) -> str:
    """Returns why none of these accounts, all there are, could ever send it, in one sentence; empty: one
    could, or its channel has none."""
    every = (template.channel, PROVIDERS["null"].channel)
    of_channel = [one for one in accounts if PROVIDERS[one.provider].channel in every]
    if not of_channel or any(_sends(account, template) for account in of_channel):
        return ""
    return f"no account could send it: nothing for {_named(of_channel)}"


def _sends(account: Account, template: DeclaredTemplate) -> bool:
    provider = account.provider
    return PROVIDERS[provider].takes_anything or TEMPLATE_SUPPORT[provider].takes(
        template.of(provider)
    )


def _named(accounts: Sequence[Account]) -> str:
    return ", ".join(f"{account.name} ({account.provider})" for account in accounts)
