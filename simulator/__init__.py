"""A provider in its own process that speaks the webhook protocol and remembers all it was asked.

Its ledger is the oracle of every test that kills something: an answer leaves only after the record of
its request is on disk, so what a client believes accepted the ledger has, and what the ledger has
twice was doubled.

    python -m simulator --latency 5-20 --error 503=0.02 --reset 0.01     (or hongyan simulator)

    with spawn(folder) as provider:                 from a test or a demo
        ... provider.url, provider.control(...), provider.report(), provider.records()
"""

from simulator.cli import main, serve
from simulator.faults import Faults
from simulator.ledger import Record, read_ledger
from simulator.options import SimulatorOptions
from simulator.process import Simulator, SimulatorError, spawn
from simulator.report import KeyReport, Report, Summary, report_of
from simulator.wire import ECHOING, Lists

__all__ = [
    "ECHOING",
    "Faults",
    "KeyReport",
    "Lists",
    "Record",
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
