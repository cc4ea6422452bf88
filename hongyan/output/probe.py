"""Output of a test send: each exchange, then the outcome and its meaning."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.rule import Rule
from rich.syntax import Syntax
from rich.text import Text

from channels.channel import Resolution
from channels.probe.meaning import meaning
from hongyan.terminal import out
from message.outcomes import Accepted

if TYPE_CHECKING:
    from channels.channel import Channel
    from channels.probe.probe import Trial
    from channels.probe.redaction import Masks, Shown

_TITLES = {"token": "asking for a token", "send": "sending", "query": "asking what became of it"}
_COLOURS = {"accepted": "green", "rejected": "red", "not_sent": "yellow", "unknown": "magenta"}
_RESOLVED = {
    Resolution.SENT: "the provider has it",
    Resolution.NOT_SENT: "the provider does not have it: a worker would send it again",
    Resolution.ASK_LATER: "the provider cannot tell yet: a worker would ask again later",
}


def show(shown: Shown) -> None:
    """Prints one request and its answer."""
    out().print(
        Rule(f"{_TITLES[shown.purpose]}  {shown.took_ms:,.0f} ms", align="left", style="dim")
    )
    out().print(Text.assemble((shown.method, "bold"), " ", shown.url), soft_wrap=True)
    _fields(shown.headers)
    _body(shown.body)
    if shown.status is None:
        out().print(Text.assemble(("no answer  ", "bold red"), shown.failure), soft_wrap=True)
        return
    style = "bold green" if 200 <= shown.status < 300 else "bold yellow"
    out().print(Text.assemble((f"{shown.status} {shown.reason}".strip(), style)))
    _fields(shown.answer_headers)
    _body(shown.answer_body)


def show_outcome(trial: Trial, channel: Channel, masks: Masks) -> None:
    """Prints the outcome and its meaning, then the query's result, if one was made."""
    outcome = trial.outcome
    name = type(outcome).__name__
    code = outcome.provider_id if isinstance(outcome, Accepted) else outcome.code
    detail = "" if isinstance(outcome, Accepted) else masks.text(outcome.detail)
    out().print(Rule(style="dim"))
    colour = _COLOURS[outcome.__struct_config__.tag]  # type: ignore[index]
    out().print(
        Text.assemble((name, f"bold {colour}"), "  ", (masks.text(code), "bold"), "  ", detail)
    )
    out().print(meaning(outcome, channel), style="dim")
    if trial.asked:
        out().print(Text.assemble(("resolve", "bold"), "  ", _found(trial, masks)))
        out().print(advice(trial, channel), style="dim")


def advice(trial: Trial, channel: Channel) -> str:
    """Returns the setting that a query of calls in doubt needs; empty if none, or without a query."""
    shown = trial.resolved is not None and trial.resolved.resolution is Resolution.SENT
    if not trial.asked or not isinstance(trial.outcome, Accepted):
        return ""
    if trial.denied_s:
        denied = f"for {trial.denied_s:.0f} s the query denied what the provider had accepted"
        return f"{denied}: set query_lag_s to much more, or what is in doubt is sent twice."
    if shown:
        return ""
    needs = channel.promises.needs
    first = "the query did not show what the provider had accepted: a doubt is for the policy. "
    return first + (f"To switch on: {needs}" if needs else "")


def _found(trial: Trial, masks: Masks) -> str:
    if trial.resolved is None:
        return "this provider has no query, or the account does not switch it on"
    found = trial.resolved
    named = f" as {masks.text(found.provider_id)}" if found.provider_id else ""
    detail = f" ({masks.text(found.detail)})" if found.detail else ""
    return f"{_RESOLVED[found.resolution]}{named}{detail}"


def _fields(fields: list[tuple[str, str]]) -> None:
    for name, value in fields:
        out().print(Text.assemble((f"{name}: ", "dim"), value), soft_wrap=True)


def _body(body: Any) -> None:
    """Prints JSON in colours, a form one field a line, a text as it is."""
    if body is None:
        return
    out().print()
    if isinstance(body, str):
        out().print(Text(body), soft_wrap=True)
    elif isinstance(body, list) and all(isinstance(pair, tuple) for pair in body):
        for name, value in body:
            out().print(Text.assemble((f"{name} = ", "dim"), value), soft_wrap=True)
    else:
        text = json.dumps(body, ensure_ascii=False, indent=2)
        out().print(Syntax(text, "json", background_color="default", word_wrap=True))
    out().print()
