"""Who keeps which room for whom? The one ledger of promises.

ledger       makes, moves, ends: the one place where a promise is judged
allowance    what queues may still promise, by the last plan and what was promised since
free_room    how many more pods a node takes beside everything promised
arrivals     places for gangs whose members are still being created
tickets      the plan's proposals, disposed of in slices
wakeups      who has a place and did not come
summons      calling for a kube-scheduler that gives no sign
answers      what filter answered, until the watch knows better
"""
