"""One test send with everything that went over the wire, secrets and receivers masked."""
