"""Parts of every process that calls providers: accounts, time, leases, alerts. No Kafka here."""
