"""What every process that calls providers needs: accounts, time, leases, alerts. No Kafka here."""
