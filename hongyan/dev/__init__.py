"""`hongyan dev`: the whole platform in one tree of processes, until Ctrl-C.

process_tree     starts, watches and ends worker, recovery and receipts
config_files     hongyan.toml, policy.toml and templates.toml of a folder
environment      the broker, the ledger and the provider that the processes use
supervision      starts all, waits until they answer, starts again what died
"""
