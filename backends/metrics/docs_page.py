"""docs/metrics.md, made from the families: `python -m backends.metrics.docs_page > docs/metrics.md`.

The page holds only what the code says; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from backends.metrics.buckets import BATCHES, SECONDS
from backends.metrics.catalogue import FAMILIES
from backends.metrics.families import PROCESSES, TRACERS, Family

_HEAD: Final = """\
# Metrics

Made from the code by `python -m backends.metrics.docs_page`; a change belongs into `backends/metrics/`.

Each process shows its metrics at `/metrics`, in Prometheus' text format: a worker at
`worker.health_address`, a recovery at `recovery.health_address`, receipts at `receipts.listen`, a
look-back at `lookback.health_address`, campaigns at `campaigns.health_address`, a relay at
`relay.health_address`, a gateway at `gateway.health_address`, a console at `console.health_address`.
`HEAD` answers as `GET`, without a body.

- A name that ends in `_total` is a counter: it starts at 0 with the process. Use `rate()` or `increase()`.
- A histogram has the samples `_bucket`, `_sum` and `_count`. All processes use the same buckets.
- Counters and histograms have a sample `_created` with the Unix time of their first use.
- Labels such as `lane`, `account`, `reason` and `outcome` have as many values as the configuration and the
  code name. No label holds a receiver, a message or an id.

**Files.** [deploy/prometheus/rules.yaml](../deploy/prometheus/rules.yaml) has recording and alert rules,
[deploy/grafana/hongyan.json](../deploy/grafana/hongyan.json) a dashboard. [The runbook](runbook.md) has a
section for each alert.
"""
_TITLES: Final = {
    PROCESSES: "Every process",
    TRACERS: "Every process but the console",
    ("worker", "recovery"): "Worker and recovery",
    ("worker",): "Worker",
    ("recovery",): "Recovery",
    ("receipts",): "Receipts",
    ("gateway",): "Gateway",
    ("lookback",): "Look-back",
    ("campaigns",): "Campaigns",
    ("relay",): "Relay",
    ("console",): "Console",
}


def page() -> str:
    """Returns the whole document."""
    lines = [_HEAD, *_buckets()]
    for shown_by, title in _TITLES.items():
        lines += ["", f"## {title}", "", *_table(f for f in FAMILIES if f.shown_by == shown_by)]
    return "\n".join(lines) + "\n"


def _buckets() -> Iterator[str]:
    for what, bounds in (("Seconds", SECONDS), ("Batches", BATCHES)):
        yield f"- {what}: {', '.join(f'{bound:g}' for bound in bounds)}, +Inf."


def _table(families: Iterable[Family]) -> Iterator[str]:
    yield "| metric | type | labels | meaning | watch |"
    yield "|---|---|---|---|---|"
    for one in families:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        yield f"| `{one.name}` | {one.type} | {labels} | {one.text} | {one.watch} |"


if __name__ == "__main__":
    print(page(), end="")
