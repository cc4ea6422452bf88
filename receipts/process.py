"""The process of `hongyan receipts`: open, serve until SIGTERM, answer pushes under way, end.

The end, in this order: the server takes no push any more and answers those under way (at most GRACE_S);
the pullers ask no more and store their last answers; the matcher ends its pass (waiting receipts are in the
database); the trace is written out; the heartbeat's row is retired. The death of the matcher or of a puller
ends the process the same way, with EXIT_FAILED.
"""

from __future__ import annotations

import os
import secrets
import socket
import threading
from contextlib import ExitStack
from typing import Final

import structlog

from backends.http_server.connection_limits import HEAD_BYTES, BoundedProtocol
from backends.http_server.serving import HttpServer, bound, http_server, serve_until
from backends.logs import identified
from backends.metrics.families import RECEIPTS
from backends.settings import Settings
from channels.http_client.transport import Transport
from idempotency.fleet.snapshots import ProcessSnapshot
from idempotency.receipts.sql import open_receipts
from idempotency.receipts.store import Receipts
from idempotency.sql_ledger import SqlLedger, open_ledger
from message.structs import describe_structs
from policy.versions import Versions
from policy.watcher import PolicyWatcher
from receipts.group_commit import GroupCommit
from receipts.http_app import ReceiptEndpoint, build_app
from receipts.matcher import Matcher
from receipts.metrics import ReceiptMetrics
from receipts.puller import Puller, stop_all
from receipts.sources import ReceiptSource, load_sources
from sending.policy_reload import in_force_at_start
from sending.runtime.exit_codes import EXIT_DONE, EXIT_FAILED
from sending.runtime.heartbeat import ProcessHeartbeat
from sending.runtime.threads import ThreadGroup
from sending.sum_writer import SumWriter
from tracing import open_recorder
from tracing.masks import hasher
from tracing.metrics import show_drops

log = structlog.get_logger(__name__)

GRACE_S: Final = 10
"""Seconds in which pushes under way may be answered after the stop."""
LISTEN: Final = "127.0.0.1:9470"


def run_receipts(settings: Settings, stop: threading.Event, listen: str = "") -> int:
    """Serves until `stop` is set. Returns the exit code. Raises SettingsError, LedgerError."""
    sources = load_sources(settings)
    describe_structs()
    name = receipts_name()
    with ExitStack() as stack, identified(worker=name):
        wanted = listen or settings.receipts.listen
        listener = stack.enter_context(bound(wanted, "receipts.listen", LISTEN))
        ledger = open_ledger(settings)
        stack.callback(ledger.close)
        threads = ThreadGroup(failed=stop)
        server = _opened(settings, sources, ledger, name, stack, threads)
        host, port = listener.getsockname()[:2]
        log.info("receipts_started", address=f"{host}:{port}", accounts=sorted(sources))
        serve_until(stop, server, listener)
    if threads.failure is not None:
        dead, cause = threads.failure
        log.critical("receipts_failed", thread=dead, cause=repr(cause))
        return EXIT_FAILED
    log.info("stopped")
    return EXIT_DONE


def receipts_name() -> str:
    """Returns a unique name for this process in logs, trace and heartbeat: containers of one host may
    share its name, and each of them has a process 1."""
    return f"receipts-{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"


def _opened(
    settings: Settings,
    sources: dict[str, ReceiptSource],
    ledger: SqlLedger,
    worker: str,
    stack: ExitStack,
    threads: ThreadGroup,
) -> HttpServer:
    """Starts all threads. Returns the server; `stack` closes everything, the last one first."""
    watch = _follow_policy(settings, ledger, stack)
    receipts = open_receipts(ledger, settings)
    metrics = ReceiptMetrics(sources)
    _beat(metrics, ledger, watch, worker, stack, threads.failed)
    _write_sums(metrics, ledger, worker, stack)
    recorder = open_recorder(settings, worker)
    stack.callback(recorder.close)
    show_drops(recorder, metrics.registry)
    terms = settings.receipts
    matcher = Matcher(
        receipts,
        recorder,
        metrics,
        every_s=terms.match_s,
        keep_days=terms.keep_days,
        worker=worker,
        hash_receiver=hasher(settings.outcomes.hash_key),
    )
    metrics.show_waiting(matcher.waiting)
    matcher.start(threads)
    stack.callback(matcher.stop)
    _start_pulling(settings, sources, receipts, matcher, metrics, stack, threads)
    endpoint = ReceiptEndpoint(sources, GroupCommit(receipts.store, matcher.wake, metrics), metrics)
    return http_server(
        build_app(endpoint, matcher, metrics),
        grace_s=GRACE_S,
        lifespan="off",
        proxy_headers=False,
        http=BoundedProtocol,
        h11_max_incomplete_event_size=HEAD_BYTES,
    )


def _write_sums(metrics: ReceiptMetrics, ledger: SqlLedger, worker: str, stack: ExitStack) -> None:
    """Writes sums until `stack` is closed, after the matcher's last pass."""
    writer = SumWriter(metrics.sums, ledger.sums(), worker)
    threading.Thread(target=writer.run, name="sums", daemon=True).start()
    stack.callback(writer.close)


def _beat(
    metrics: ReceiptMetrics,
    ledger: SqlLedger,
    watch: PolicyWatcher,
    worker: str,
    stack: ExitStack,
    stop: threading.Event,
) -> None:
    """Registers the process, which beats until `stack` is closed, and ends it when a person orders that."""
    heartbeat = ProcessHeartbeat(
        ledger,
        RECEIPTS,
        worker,
        stop,
        snapshot=lambda: ProcessSnapshot(watch.number, receipts=metrics.arrivals.snapshot()),
    )
    heartbeat.start()
    stack.callback(heartbeat.close)


def _follow_policy(settings: Settings, ledger: SqlLedger, stack: ExitStack) -> PolicyWatcher:
    """Announces the ends of the lanes that the policy in force names, and follows its changes."""
    versions, announced = Versions(ledger.database), ledger.announced
    now = in_force_at_start(settings, versions)
    announced.follow(now.policy.announced)
    watch = PolicyWatcher(
        versions,
        settings.accounts,
        lambda new: announced.follow(new.announced),
        number=now.number,
    )
    threading.Thread(target=watch.run, name="policy", daemon=True).start()
    stack.callback(watch.stop)
    return watch


def _start_pulling(
    settings: Settings,
    sources: dict[str, ReceiptSource],
    receipts: Receipts,
    matcher: Matcher,
    metrics: ReceiptMetrics,
    stack: ExitStack,
    threads: ThreadGroup,
) -> None:
    asked = [source for source in sources.values() if source.pull]
    if not asked:
        return
    transport = Transport()
    stack.callback(transport.close)
    pullers = [
        Puller(
            source,
            transport,
            receipts.store,
            every_s=settings.receipts.pull_s,
            on_stored=matcher.wake,
            metrics=metrics,
        )
        for source in asked
    ]
    stack.callback(stop_all, pullers)
    for puller in pullers:
        puller.start(threads)
