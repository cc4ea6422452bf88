"""`hongyan doctor`."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from msgspec.structs import replace

from hongyan.author import observer
from hongyan.errors import WrongUsage
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of

if TYPE_CHECKING:
    from backends.settings import Settings
    from producer.doctor.diagnosis import Diagnosis
    from producer.doctor.facts import ClientFacts
    from producer.doctor.gathering import Inquiry
    from producer.doctor.runs import DoctorRuns

HELP: Final = explained(
    "Hold the live cluster, topics, our configuration, databases, Redis, spools and clocks against rules. "
    "Each finding tells what was seen, what is wanted, and what would be lost. Changes nothing. Exits 1 if "
    "an error was found, or if a rule of that weight could not be decided.",
    "hongyan doctor",
    "hongyan doctor --grace 45 --producer shop/producer.properties",
    "hongyan doctor --fix > mend.sh",
    "hongyan doctor --json",
)


def doctor(
    context: typer.Context,
    grace: Annotated[
        float | None,
        typer.Option(
            "--grace",
            min=0,
            metavar="SECONDS",
            envvar="HONGYAN_GRACE_S",
            show_envvar=False,
            help="The orchestrator's time between SIGTERM and SIGKILL.",
        ),
    ] = None,
    outage_days: Annotated[
        int | None,
        typer.Option(
            "--outage-days",
            min=1,
            max=365,
            metavar="N",
            help="The longest shutdown of all workers.",
            show_default="3",
        ),
    ] = None,
    producer: Annotated[
        list[Path] | None,
        typer.Option(
            "--producer",
            metavar="FILE",
            help="A business producer's properties, of Java's client or librdkafka; repeat it.",
            show_default=False,
        ),
    ] = None,
    spool: Annotated[
        list[Path] | None,
        typer.Option(
            "--spool",
            metavar="FOLDER",
            help="A client's spool on this host, beside console.spool_dirs; repeat it.",
            show_default=False,
        ),
    ] = None,
    members: Annotated[
        bool,
        typer.Option("--members", help="Ask for the group's members, too.", metavar=""),
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Print the commands that mend; run none.", metavar="")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For programs.", metavar="")] = False,
) -> None:
    settings = settings_of(context)
    asked = _inquiry(settings, grace, outage_days, producer or [], members)
    asked = replace(asked, spools=[str(folder) for folder in spool or []])
    found = _examined(settings, asked)
    _show(found, settings, fix=fix, as_json=as_json)
    raise typer.Exit(DONE if found.healthy else PROBLEMS)


def _inquiry(
    settings: Settings,
    grace: float | None,
    outage_days: int | None,
    files: list[Path],
    members: bool,
) -> Inquiry:
    from message.vocabulary import LANES
    from policy.topic_retention import OUTAGE_DAYS
    from producer.doctor.gathering import Inquiry

    topics = [lane.topic(settings.kafka.topic_prefix) for lane in LANES]
    return Inquiry(
        grace_s=grace,
        outage_days=outage_days or OUTAGE_DAYS,
        members=members,
        producers=[_producer(file, topics) for file in files],
    )


def _producer(file: Path, topics: list[str]) -> ClientFacts:
    from producer.doctor.properties import producer_of

    try:
        return producer_of(file.name, file.read_text(encoding="utf-8"), topics)
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else exc
        raise WrongUsage(f"--producer {file}: {reason}") from exc


def _examined(settings: Settings, inquiry: Inquiry) -> Diagnosis:
    """Examines, and stores the result where the ledger has a place for it."""
    from hongyan.policy_source import policy_in_force
    from producer.doctor.examination import examine

    policy = policy_in_force(settings)
    before: dict[str, int] = {}
    with _remarked("the run before is not known"), _opened(settings) as runs:
        before = runs.partitions()
    found = examine(settings, policy, inquiry, before)
    with _remarked("the result is not kept for the console"), _opened(settings) as runs:
        runs.store(found, host=socket.gethostname(), person=observer())
    return found


@contextmanager
def _opened(settings: Settings) -> Iterator[DoctorRuns]:
    """Yields the stored results. Raises SettingsError, SqlError."""
    from hongyan.database import existing
    from idempotency.sql_ledger import clock_of
    from producer.doctor.runs import DoctorRuns

    with closing(existing(settings)) as database:
        yield DoctorRuns(database, clock_of(database))


@contextmanager
def _remarked(otherwise: str) -> Iterator[None]:
    """Turns a database that is away, or that has no such table yet, into a remark."""
    from backends.settings import SettingsError
    from backends.sql.errors import SqlError

    try:
        yield
    except (SettingsError, SqlError) as exc:
        err().print(f"{otherwise}: {exc}", markup=False)


def _show(found: Diagnosis, settings: Settings, *, fix: bool, as_json: bool) -> None:
    from hongyan.output.doctor import as_builtins, fix_lines, show

    if as_json:
        print_json(as_builtins(found))
    elif fix:
        for line in fix_lines(found, settings.kafka.bootstrap):
            out().print(line, markup=False, soft_wrap=True)
    else:
        show(found)
