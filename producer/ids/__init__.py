"""Snowflake ids under leased worker numbers (docs/ids.md), in the order in which a request meets them:

generator        hands out batches of ids; thread-safe, safe across fork
sequence         the arithmetic of a batch: pure
worker_numbers   leases and high-water marks in the database
lease_keeper     the thread that renews the lease
opening          builds a generator from the settings
errors           the errors of this package
"""
