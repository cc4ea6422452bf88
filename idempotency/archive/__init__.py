"""Days that left the ledger: the contract, both databases, looking a delivery up."""
