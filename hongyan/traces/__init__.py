"""`hongyan trace` over every place that may know a delivery.

search       the ledger, its archive, the live trace and the rebuilt traces, merged
selection    the terms of a search; one receiver's or one template's deliveries
"""
