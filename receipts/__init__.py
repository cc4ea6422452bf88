"""What the providers say of a delivery after it was sent: taken in, kept, and applied to the ledger.

    provider ──push──▶ app ──▶ parser ──▶ intake ──▶ receipts (SQL) ──▶ matcher ──▶ deliveries, trace
             ◀──pull── pull ──────────────▲

A push is answered once its receipts are durable; which delivery they are of is found out afterwards, by
one loop that looks at new ones at once and at those it could not place again and again.
"""
