"""`/lookback`: transactions that wait for a person's decision.

unresolved   the queue, one transaction, and the decision about it
"""
