"""The simulator's page for people: totals, and its last messages with their answers."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from heapq import nlargest
from html import escape
from typing import Final

from simulator.report import KeyReport, Summary

SHOWN: Final = 100
_MS: Final = 1_000
_PAGE: Final = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="refresh" content="2">
<title>Simulated provider</title>
<style>
body {{ font: 14px/1.5 system-ui, sans-serif; margin: 2rem; }}
table {{ border-collapse: collapse; }}
td, th {{ padding: .1rem 1rem .1rem 0; text-align: left; white-space: nowrap; }}
.no {{ color: #a00; }}
</style>
<h1>Simulated provider</h1>
<p>{requests} requests for {keys} messages: {accepted} accepted, {doubled} doubled.
Faults: <code>POST /_control</code>, everything as JSON: <a href="/_report">/_report</a></p>
<table>
<tr><th>at</th><th>receiver</th><th>message</th><th>path</th><th>requests</th><th>answers</th></tr>
{rows}
</table>
</html>
"""


def page(summary: Summary, reports: Iterable[KeyReport]) -> bytes:
    """Returns the page with the latest messages, newest first."""
    latest = nlargest(SHOWN, reports, key=lambda one: one.last_seq)
    return _PAGE.format(
        requests=summary.requests,
        keys=summary.keys,
        accepted=summary.accepted,
        doubled=len(summary.doubled),
        rows="\n".join(map(_row, latest)),
    ).encode()


def _row(one: KeyReport) -> str:
    at = datetime.fromtimestamp(one.last_ms / _MS).astimezone().strftime("%H:%M:%S.%f")[:-3]
    answers = ", ".join(f"{answer} × {count}" for answer, count in one.answers.items())
    cells = (at, one.receiver, one.id, one.path, str(one.requests), answers)
    shown = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f"<tr{'' if one.accepted else ' class=no'}>{shown}</tr>"
