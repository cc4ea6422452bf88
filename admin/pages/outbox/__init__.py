"""`/outbox`: the business's outbox of `relay.outbox_url`.

database       opens it for one request, and tells if it is away
notifications  parked rows, one notification, and the orders about it
"""
