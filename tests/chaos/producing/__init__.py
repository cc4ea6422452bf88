"""Chaos of the producing side: business processes, and all that carries their notifications to Kafka.

extent      the size of a run, and the deal of each number: its way in and its end
shop        the business's database: orders, refused orders, outbox, barriers
business    a process of the business: its transactions by outbox, look-back and gateway
teller      a process that sends by the client with a spool, and keeps a journal of its yeses
processes   the handles of these processes and of relay, look-back and gateway
places      pairs of processes: kills them, and fills their places again
brokers     kills brokers in rotation, one at a time
kills       the rotation of all kills
scene       servers, topics, configuration and processes of one run
run         the driver of one run
judge       from the books, the broken promises
journal_run the driver of the run of tellers, and its judge
"""
