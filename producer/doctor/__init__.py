"""`hongyan doctor`: holds the live cluster, our configuration, the database and Redis against rules.

In the order in which data meets them:

    facts           what was read, as data
    properties      a business producer's own configuration file
    gathering       reads the facts; a source that fails is missing, never healthy
    database_facts  reads the settings of the database that decide what a crash may take
    client_facts    the configuration of our own Kafka clients
    rule            a rule's shape, and what it may say
    producer_rules, topic_rules, broker_rules, consumer_rules, storage_rules, cross_rules
    rules           all of them, in order
    diagnosis       facts against rules: findings, what is not known, what passed
    runs            the stored results, for the console and for later runs
"""
