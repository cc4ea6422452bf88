"""Accounts of a lane: selection, circuit breakers, rates, receivers' limits, the fleet's size."""
