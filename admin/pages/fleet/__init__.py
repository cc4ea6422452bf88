"""Pages of lanes, processes, accounts and alerts, and a person's orders to the fleet.

    lanes       `/lanes`: guarantee, accounts, pauses, and who obeys them
    processes   `/fleet`: workers and recoveries, drains
    accounts    `/accounts`: logins at providers in every process, pauses
    trials      `/accounts/NAME/test`: a test send with its exchange
    alerts      `/alerts`: acknowledge, silence, the runbook

`followed` reads the policy in force, `orders` what the forms of orders share.
"""
