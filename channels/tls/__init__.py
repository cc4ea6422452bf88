"""TLS: the authorities we trust, and records that OpenSSL reads and writes in memory."""
