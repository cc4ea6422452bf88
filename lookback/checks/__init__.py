"""Checks of look-back: asks the business about one transaction.

addresses     the addresses that a check may have
http_check    GET over channels' transport
grpc_check    the generic service hongyan.lookback.Check
guarded       a cap and a circuit breaker around one endpoint
factory       the checker of each business type, from the configuration
"""
