"""Lost deliveries: proposed from offsets, the trace and the ledger.

In the order in which data meets them:

    terms.py       the lanes' terms by policy version
    places.py      each record against the offsets of the group and the log
    claimed.py     deliveries that the trace shows in the ledger
    causes.py      causes, each with its proof
    holes.py       the cause `hole`
    statements.py  what the ledger is asked
    ledger.py      asks it
    scope.py       what the run before left to do; figures
    evidence.py    everything but the ledger's answers about keys
    frames.py      frames that are computed, or known to be empty
    candidates.py  what a run proposes, and its writer
    job.py         one run
"""
