"""Days that left the ledger: the contract, both databases, looking up a delivery and its history."""
