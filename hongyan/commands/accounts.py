"""`hongyan accounts`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from hongyan.flags import optional, pairs
from hongyan.tables import listing
from hongyan.terminal import DONE, PROBLEMS, err, explained, out, print_json, settings_of
from hongyan.usage.durations import seconds

if TYPE_CHECKING:
    from channels.channel import Account, Channel
    from channels.probe.probe import Trial
    from channels.probe.redaction import Shown
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
CATALOGUE = explained(
    "Print docs/channels.md: the guarantees of each provider's adapter.",
    "hongyan accounts catalogue > docs/channels.md",
)
_JSON = Annotated[bool, typer.Option("--json", help="For programs.", metavar="")]
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
    from channels.registry import channel_for
    from hongyan.trials import account_named, body_of, delivery_of, limits_for, tried

    account = account_named(settings, name)
    channel = channel_for(account)
    fields = {
        **body_of(channel.channel, template, param, text, subject, content),
        **optional(attributes=pairs("--attribute", attribute)),
    }
    delivery = delivery_of(settings, channel.channel, account, to, fields)
    if refusal := channel.refusal(account, delivery):
        _refused(refusal, as_json=as_json)
    limits = limits_for(settings, channel, account, kind, timeout)
    if not as_json and limits.total > _PATIENCE_S:
        err().print(f"waiting for up to {limits.total:g} s, as a worker would; --timeout for less")
    trial = tried(channel, account, delivery, limits, wait if resolve else None)
    _report(account, channel, delivery, trial, as_json=as_json)


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
        out().print(f"[bold red]refused[/] [bold]{code}[/]  ", end="")
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
    from rich.markup import escape

    table = listing(_TITLES, right=("BATCH", "RATE"))
    for one in described:
        rate = one["rate_per_s"]
        table.add_row(
            escape(one["name"]),
            one["provider"],
            one["channel"],
            f"{one['batch']:,}",
            "-" if rate is None else f"{rate:g}/s",
            escape(one["reaches"]),
            escape(one["endpoint"]),
            escape(one["resolve"]),
        )
    out().print(table)
