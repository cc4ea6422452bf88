"""The reach of an account: persons, groups, or the one group of its robot.

The selector (sending/accounts/selector.py) chooses an account only for receivers that it reaches. Adapters
refuse every other receiver, too (`wrong_receiver`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Final, Protocol

import msgspec

from message.envelope import MAX_RECEIVER
from message.receivers import GROUP, group_of, is_chat_id

GroupName = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        max_length=MAX_RECEIVER - len(GROUP),
        description=f"a robot reaches one group alone; name it here, and write {GROUP}NAME as receiver",
    ),
]
"""Option `group` of a robot's account; the error for a missing one ends with the description."""


class Reach(msgspec.Struct, frozen=True):
    """Receivers that one account may send to."""

    persons: bool = True
    groups: bool = True
    """Groups of any name."""
    chats: bool = False
    """Groups named by the provider's own id."""
    group: str | None = None
    """The one group of its robot; None: no robot."""

    def takes(self, group: str | None) -> bool:
        """Returns whether it reaches the group of that name; None: a person."""
        if group is None:
            return self.persons
        if self.groups or (group and group == self.group):
            return True
        return self.chats and is_chat_id(group)

    def meets(self, other: Reach) -> bool:
        """Returns whether both reach some receiver."""
        if (self.persons and other.persons) or (self.groups and other.groups):
            return True
        if self.chats and other.chats:
            return True
        return any(
            one.group is not None and two.takes(one.group)
            for one, two in ((self, other), (other, self))
        )

    def __str__(self) -> str:
        some = ("persons" * self.persons, "groups" * self.groups, "groups by chat_id" * self.chats)
        robot = f"{GROUP}{self.group}" if self.group is not None else ""
        return " and ".join(filter(None, (*some, robot)))


EVERYBODY: Final = Reach()
PERSONS: Final = Reach(groups=False)
PERSONS_AND_CHATS: Final = Reach(groups=False, chats=True)
ONE_GROUP: Final = Reach(persons=False, groups=False, group="")
"""The reach of a robot; the option `group` of its account names the group."""


class Reaching(Protocol):
    """An account, as far as its reach goes."""

    @property
    def name(self) -> str:
        """Its name in the configuration."""

    @property
    def reach(self) -> Reach:
        """Receivers that it reaches."""


def wrong_receiver(account: Reaching, channel: str, receiver: str) -> str:
    """Returns why the account may not send to the receiver, as `code: sentence` without the receiver;
    empty: it may. The code is `wrong_receiver` for a person, `wrong_group` for a group."""
    reach, group = account.reach, group_of(channel, receiver)
    if reach.takes(group):
        return ""
    if group is None:
        return (
            f"wrong_receiver: account {account.name} is a robot, which reaches its own group alone; write"
            f" the receiver as {GROUP}NAME, or add an account of an application to the lane"
        )
    if reach.group is not None:
        return (
            f"wrong_group: the robot of account {account.name} is in another group; add an account whose"
            " `group` is this one's name to the lane"
        )
    return (
        f"wrong_group: account {account.name} reaches {reach} alone; add an account of a robot whose"
        " `group` is this group's name to the lane"
    )


def mixed_up(reaches: Mapping[str, Reach], weights: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yields the faults of weights over accounts without a common receiver: (account, or empty for all of
    them; one sentence)."""
    regular = {name: reach for name, reach in reaches.items() if weights[name]}
    for name, reach in reaches.items():
        if regular and not weights[name] and not any(reach.meets(r) for r in regular.values()):
            others = ", ".join(f"{other} ({r})" for other, r in regular.items())
            what = (
                f"is a reserve (0) of nobody: it reaches {reach}, and the others do not ({others})"
            )
            yield name, f"{what}; give it a weight of 1, or leave it out"
    unequal = len({weights[name] for name in reaches}) > 1
    if len(regular) == len(reaches) and unequal and not _any_two_meet([*reaches.values()]):
        reached = ", ".join(f"{name} reaches {reach}" for name, reach in reaches.items())
        names = ", ".join(f'"{name}"' for name in reaches)
        what = f"weighs accounts of which no two reach the same ({reached}), so no weight counts"
        yield "", f"{what}; write [{names}]"


def _any_two_meet(reaches: list[Reach]) -> bool:
    return any(a.meets(b) for n, a in enumerate(reaches) for b in reaches[n + 1 :])
