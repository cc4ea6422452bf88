"""The relay: publishes what businesses wrote into their outbox (docs/outbox.md).

    opening    the business's database
    rights     tries the rights that marks need
    process    opens everything, serves until SIGTERM, drains
    relay      claims batches and hands them to Kafka's client
    marker     waits for acknowledgements and marks rows
    accepted   announces what Kafka acknowledged in the trace
    outage     spares the rows' attempts while Kafka is away
    wakeups    NOTIFY of PostgreSQL
    reporter   heartbeat row, backlog, alerts
    ledger     heartbeat and windows of alerts in the ledger, once it answers
    upkeep     partitions ahead, and rows that have ended
    past_days  partitions of past days: waiting rows move on, the rest is dropped
    metrics    the numbers of `/metrics`

Nothing outside of `producer` imports it but commands and the console.
"""
