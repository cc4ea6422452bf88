"""Receipts of providers: taken in, stored, and applied to the ledger.

    provider ──push──▶ http_app ──▶ parser ──▶ group_commit ──▶ receipts (SQL) ──▶ matcher ──▶ deliveries,
             ◀──pull── puller ────────────────────────────────────▲                            trace

A push is answered once its receipts are durable. The matcher finds their deliveries afterwards: it looks at
new receipts at once, and again and again at those that it could not place. `arrivals` and `heartbeat` show
the process and each account's receipts to the fleet's pages.
"""
