"""`hongyan doctor`: holds the live cluster, our configuration, the database and Redis against rules.

In the order in which data meets them:

    facts           what was read, as data
    properties      a business producer's own configuration file
    client_keys     keys that show whose client a file is for
    gathering       reads the facts; a source that fails is missing, never healthy
    database_facts  reads the settings of the ledger's database that decide what a crash may take
    outbox_facts    the same of a business's database with an outbox
    client_facts    the configuration of our own Kafka clients
    spool_facts     looks at the disks under spools on this host
    rule            a rule's shape, and what it may say
    rules/          the rules, a module a group
    rule_list       all of them, in order
    diagnosis       facts against rules: findings, what is not known, what passed
    runs            the stored results, for the console and for later runs
"""
