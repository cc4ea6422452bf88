"""A provider in its own process, which speaks the webhook protocol and remembers all requests.

Its ledger is the oracle of every test that kills something. An answer leaves only after the record of its
request is on disk. So the ledger has every acceptance that a client believes in, and shows every double.

    python -m simulator --latency 5-20 --error 503=0.02 --reset 0.01     (or hongyan simulator)

    with spawn(folder) as provider:                 from a test or a demo
        ... provider.url, provider.control(...), provider.report(), provider.records()
"""

from simulator.cli import main, serve
from simulator.faults import Faults
from simulator.ledger import LedgerRecord, read_ledger
from simulator.options import SimulatorOptions
from simulator.process import Simulator, SimulatorError, spawn
from simulator.report import KeyReport, Report, Summary, report_of
from simulator.wire import ECHOING, Lists

__all__ = [
    "ECHOING",
    "Faults",
    "KeyReport",
    "LedgerRecord",
    "Lists",
    "Report",
    "Simulator",
    "SimulatorError",
    "SimulatorOptions",
    "Summary",
    "main",
    "read_ledger",
    "report_of",
    "serve",
    "spawn",
]
