"""`hongyan demo`: the whole platform on one machine without a server, with a worker killed midway.

environment    broker, ledger, provider and the processes of one run
scenario       sends at a steady rate, kills a worker in mid-call, lets recovery decide the rest
progress       the ledger's view: workers, lanes, rate
proof          the provider's book against the notifications that Kafka acknowledged
spark_note     the line on the Spark jobs, which the demo does not run
"""
