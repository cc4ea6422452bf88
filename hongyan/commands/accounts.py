"""`hongyan accounts`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.author import author_of
from hongyan.errors import NotDone, WrongUsage
from hongyan.flags import duration_ms, given_reason, optional, pairs
from hongyan.tables import listing, local_time
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from backends.settings import Settings
    from channels.channel import Account, Channel
    from channels.probe.probe import Trial
    from channels.probe.redaction import Shown
    from idempotency.sql_ledger import SqlLedger
    from message.delivery import Delivery

app = typer.Typer(name="accounts", help="Logins at providers.", no_args_is_help=True)

LIST = explained(
    "List the accounts of hongyan.toml and what their providers offer.",
    "hongyan accounts list",
    "hongyan accounts list --json",
)
TEST = explained(
    "Send one real message through an account and show every exchange; secrets, tokens and the receiver "
    "are masked. The time limits are those of the lane of the account's channel and the kind. Needs no "
    "Kafka, and of the ledger only the policy in force. --resolve then queries the outcome, as recovery "
    "does for a call in doubt, and names the setting to switch on if the query does not show it. Exits 0 "
    "if the provider accepted the message and, with --resolve, showed it; else 1.",
    "hongyan accounts test aliyun --to +8613800000001 --template SMS_123 --param code=4711",
    "hongyan accounts test mail --to ann@example.com --text 'A test' --subject Hello",
    'hongyan accounts test wecom --to li --content \'{"markdown": "**A test**"}\'',
    "hongyan accounts test ops-robot --to group:ops --text 'A test'",
    "hongyan accounts test hook --to u1 --text hi --resolve --json",
)
PAUSE = explained(
    "Stop sending through an account, in every process or with --worker in one, within five seconds. Its "
    "lanes go on through their other accounts; a lane without one holds, as if it were paused. TTLs go on. "
    "Waits until each live process has reported that it obeys; exits 1 if one does not.",
    "hongyan accounts pause aliyun --reason 'texts arrive late' --for 30m",
    "hongyan accounts pause aliyun --worker worker-1 --reason 'its address is not allowed'",
)
RESUME = explained(
    "End a pause of an account. Exits 1 if there is none of that name.",
    "hongyan accounts resume aliyun",
    "hongyan accounts resume aliyun --worker worker-1 --reason repaired",
)
PAUSES = explained(
    "List the pauses of accounts that are in force.",
    "hongyan accounts pauses",
    "hongyan accounts pauses --json",
)
CATALOGUE = explained(
    "Print docs/channels.md: the guarantees of each provider's adapter.",
    "hongyan accounts catalogue > docs/channels.md",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
_NAME = Annotated[str, typer.Argument(metavar="NAME", help="An account in hongyan.toml.")]
_WORKER = Annotated[
    str,
    typer.Option("--worker", metavar="ID", help="Only there; as `hongyan workers list` shows it."),
]
_AUTHOR = Annotated[
    str, typer.Option("--author", metavar="NAME", help="Who orders it.", show_default="user@host")
]
OBEYED_S = 15.0
"""Longest wait for the reports of the processes."""
_LOOK_S = 0.2
_PATIENCE_S = 60.0
"""Above this time limit the command announces the wait."""


@app.command("list", help=LIST)
def list_accounts(context: typer.Context, as_json: _JSON = False) -> None:
    settings = settings_of(context)
    from channels.registry import channel_for, load_accounts

    accounts = load_accounts(settings.accounts).values()
    described = [_described(one, channel_for(one)) for one in accounts]
    if as_json:
        print_json(described)
    elif described:
        _table(described)
    else:
        err().print("there are no accounts; add [accounts.NAME] to hongyan.toml", markup=False)


@app.command("test", help=TEST)
def try_account(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="An account in hongyan.toml.")],
    to: Annotated[str, typer.Option(metavar="RECEIVER", help="The receiver.")],
    template: Annotated[str | None, typer.Option(metavar="ID", help="A template.")] = None,
    param: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Parameter; repeat it.")
    ] = None,
    text: Annotated[str | None, typer.Option(metavar="TEXT", help="A plain text.")] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="TEXT", help="The e-mail's subject.")
    ] = None,
    content: Annotated[str | None, typer.Option(metavar="JSON", help="Inline content.")] = None,
    attribute: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE")] = None,
    resolve: Annotated[
        bool,
        typer.Option("--resolve", help="Then query the outcome until it is proven.", metavar=""),
    ] = False,
    wait: Annotated[
        float,
        typer.Option(parser=seconds(0, 3_600), metavar="TIME", help="Longest time for --resolve."),
    ] = 60.0,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="Kind of the lane whose limits apply: notice, …")
    ] = "notice",
    timeout: Annotated[
        float | None,
        typer.Option(
            parser=seconds(0.1, 3_600),
            metavar="TIME",
            help="Time limit of each request.",
            show_default="the lane's limits",
        ),
    ] = None,
    as_json: _JSON = False,
) -> None:
    settings = settings_of(context)
    from channels.probe.trial import trial_delivery, tried
    from channels.registry import channel_for
    from channels.template_support import TEMPLATE_SUPPORT
    from hongyan.template_source import templates_now
    from hongyan.trials import account_named, body_of, limits_for

    account = account_named(settings, name)
    channel = channel_for(account)
    fields = {
        **body_of(channel.channel, template, param, text, subject, content),
        **optional(attributes=pairs("--attribute", attribute)),
    }
    delivery = trial_delivery(
        templates_now(settings, TEMPLATE_SUPPORT), account, channel.channel, to, fields
    )
    if refusal := channel.refusal(account, delivery):
        _refused(refusal, as_json=as_json)
    limits = limits_for(settings, channel, account, kind, timeout)
    if not as_json and limits.total > _PATIENCE_S:
        err().print(f"waiting for up to {limits.total:g} s, as a worker would; --timeout for less")
    trial = tried(channel, account, delivery, limits, wait if resolve else None)
    _report(account, channel, delivery, trial, as_json=as_json)


@app.command("pause", help=PAUSE)
def pause(
    context: typer.Context,
    name: _NAME,
    worker: _WORKER = "",
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Kept, and shown to others.")
    ] = "",
    for_: Annotated[
        str,
        typer.Option("--for", metavar="TIME", help="How long: 30m, 2h; default: until resumed."),
    ] = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    reason = given_reason(reason, "the pause")
    for_ms = duration_ms("--for", for_) if for_ else None
    if for_ms == 0:
        raise WrongUsage(f"--for {for_!r}: a pause lasts longer than that")
    by = author_of(author)
    settings = settings_of(context)
    if name not in settings.accounts:
        known = ", ".join(sorted(settings.accounts)) or "none"
        raise WrongUsage(f"there is no account {name!r}; hongyan.toml has {known}")
    with _ledger(settings) as ledger:
        pauses = ledger.account_pauses()
        replaced = pauses.pause(name, worker, for_ms, author=by, reason=reason.strip())
        if replaced is not None:
            text = f"{name}: replaces the pause of {replaced.author} ({replaced.reason})"
            err().print(text, markup=False)
        late = _await_obeyed(ledger, name, worker, paused=True)
    _ordered(name, worker, "paused", late, as_json=as_json)


@app.command("resume", help=RESUME)
def resume(
    context: typer.Context,
    name: _NAME,
    worker: _WORKER = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Kept.")] = "",
    author: _AUTHOR = "",
    as_json: _JSON = False,
) -> None:
    by = author_of(author)
    with _ledger(settings_of(context)) as ledger:
        pauses = ledger.account_pauses()
        if pauses.resume(name, worker, author=by, reason=reason.strip()) is None:
            where = f"on {worker}" if worker else "in the fleet"
            raise NotDone(f"{name} is not paused {where}: `hongyan accounts pauses` shows those")
        late = _await_obeyed(ledger, name, worker, paused=False)
    _ordered(name, worker, "resumed", late, as_json=as_json)


@app.command("pauses", help=PAUSES)
def pauses(context: typer.Context, as_json: _JSON = False) -> None:
    with _ledger(settings_of(context)) as ledger:
        found = ledger.account_pauses().pauses()
    if as_json:
        print_json([one._asdict() for one in found])
        return
    for one in found:
        where = f" on {one.worker}" if one.worker else ""
        until = f" until {local_time(one.until)}" if one.until is not None else ""
        since = local_time(one.paused_at)
        line = f"{one.account} is paused{where} since {since}{until} by {one.author}: {one.reason}"
        out().print(line, markup=False)
    if not found:
        out().print("no account is paused")


@contextmanager
def _ledger(settings: Settings) -> Iterator[SqlLedger]:
    from hongyan.database import opened_ledger

    with opened_ledger(settings) as ledger:
        yield ledger


def _await_obeyed(ledger: SqlLedger, name: str, worker: str, *, paused: bool) -> list[str]:
    """Returns the live processes that have not reported the order's state of the account; none once all
    have, or after OBEYED_S."""
    from idempotency.fleet.account_pauses import not_holding

    deadline = time.monotonic() + OBEYED_S
    while True:
        processes, held = ledger.fleet_status().processes(), ledger.account_pauses().pauses()
        late = not_holding(name, processes, held)
        late = [one for one in late if worker in ("", one)]
        if not late or time.monotonic() >= deadline:
            return late
        time.sleep(_LOOK_S)


def _ordered(name: str, worker: str, what: str, late: list[str], *, as_json: bool) -> None:
    """Prints the result. Raises NotDone if a process has not reported in time."""
    if as_json:
        print_json({"account": name, "worker": worker, "state": what, "not_obeying": late})
    else:
        where = f"on {worker}" if worker else "in the fleet"
        out().print(f"{name} is {what} {where}", markup=False)
    if late:
        raise NotDone(
            f"the order is kept, but {', '.join(late)} did not report within {OBEYED_S:.0f} s that it"
            " obeys: see its log, and the console's page of the account"
        )


@app.command("catalogue", help=CATALOGUE)
def catalogue() -> None:
    from channels.docs_page import page

    print(page(), end="")


def _refused(refusal: str, *, as_json: bool) -> None:
    """Prints the adapter's refusal and exits 1: nothing was sent."""
    code, _, sentence = refusal.partition(": ")
    if as_json:
        print_json(
            {"exchanges": [], "outcome": {"outcome": "rejected", "code": code}, "meaning": sentence}
        )
    else:
        out().print("refused", style="bold red", end=" ")
        out().print(code, style="bold", end="  ")
        out().print(sentence, markup=False)
        out().print("nothing was sent; a worker would settle it REJECTED", style="dim")
    raise typer.Exit(PROBLEMS)


def _report(
    account: Account, channel: Channel, delivery: Delivery, trial: Trial, *, as_json: bool
) -> None:
    from channels.probe.meaning import meaning
    from channels.probe.redaction import Masks
    from hongyan.output.probe import advice, show, show_outcome
    from message.outcomes import Accepted
    from tracing.masks import mask

    masks = Masks(
        account, trial.tokens, delivery.receiver, mask(channel.channel, delivery.receiver)
    )
    shown: list[Shown] = [masks.exchange(one) for one in trial.exchanges]
    if as_json:
        print_json(
            {
                "account": account.name,
                "provider": account.provider,
                "delivery_key": delivery.key,
                "exchanges": shown,
                "outcome": masks.tree(trial.outcome),
                "meaning": meaning(trial.outcome, channel),
                "resolved": masks.tree(trial.resolved),
                "advice": advice(trial, channel),
            }
        )
    else:
        for one in shown:
            show(one)
        show_outcome(trial, channel, masks)
    good = isinstance(trial.outcome, Accepted) and not trial.unproven
    raise typer.Exit(DONE if good else PROBLEMS)


def _described(account: Account, channel: Channel) -> dict[str, Any]:
    return {
        "name": account.name,
        "provider": account.provider,
        "channel": channel.channel,
        "reaches": str(account.reach),
        "endpoint": account.endpoint,
        "batch": channel.max_batch,
        "dedup_window_ms": channel.dedup_window(account),
        "resolve": channel.promises.resolve,
        "rate_per_s": account.rate_per_s,
    }


_TITLES = ("ACCOUNT", "PROVIDER", "CHANNEL", "BATCH", "RATE", "REACHES", "ENDPOINT", "IN DOUBT")


def _table(described: list[dict[str, Any]]) -> None:
    table = listing(_TITLES, right=("BATCH", "RATE"))
    for one in described:
        rate = one["rate_per_s"]
        table.add_row(
            one["name"],
            one["provider"],
            one["channel"],
            f"{one['batch']:,}",
            "-" if rate is None else f"{rate:g}/s",
            one["reaches"],
            one["endpoint"],
            one["resolve"],
        )
    out().print(table)
