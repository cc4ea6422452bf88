"""The shape of a rule, and what a rule may say."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from producer.doctor.facts import Facts, Source

ONE_BROKER: Final = "one broker: a development cluster cannot do better"


class Severity(StrEnum):
    """How much a finding matters."""

    ERROR = "error"
    """Messages that were acknowledged may be lost, or sent twice."""
    WARNING = "warning"
    """A protection is thinner than it should be."""
    INFO = "info"
    """Good to know; nothing is wrong."""


class Seen(NamedTuple):
    """A deviation. Those of one rule that look alike become one finding."""

    subject: str
    seen: str
    source: str
    wanted: str
    fix: str
    severity: Severity | None = None
    """None: the rule's own."""
    why: str = ""
    """Why the severity is not the rule's."""


class NotKnown(NamedTuple):
    """A fact that the rule needed and that could not be read."""

    subject: str
    reason: str


Said = Iterator[Seen | NotKnown]
Check = Callable[[Facts], Said]


class DoctorRule(NamedTuple):
    """One rule: a pure function from facts to what is wrong."""

    id: str
    severity: Severity
    group: str
    title: str
    """What holds where all is well."""
    loss: str
    """What happens to messages where it does not hold."""
    check: Check
    needs: tuple[Source, ...] = ()
    """Sources without which the rule knows nothing."""
    needs_brokers: bool = False
    """Whether a cluster of one broker cannot obey: then errors are warnings."""


class RuleBook:
    """Collects the rules of one group, in order. Used while modules load."""

    def __init__(self, group: str, *needs: Source) -> None:
        self.group = group
        self.needs = needs
        self.rules: list[DoctorRule] = []

    def rule(
        self,
        id_: str,
        severity: Severity,
        title: str,
        loss: str,
        *,
        needs: tuple[Source, ...] | None = None,
        needs_brokers: bool = False,
    ) -> Callable[[Check], Check]:
        """Registers the function that follows."""

        def register(check: Check) -> Check:
            wanted = self.needs if needs is None else needs
            self.rules.append(
                DoctorRule(id_, severity, self.group, title, loss, check, wanted, needs_brokers)
            )
            return check

        return register
