"""The hooks that kube-scheduler calls: filter, prioritize, preempt and bind.

A filter call goes through the modules in this order:

    http_server, http_connection   accept and read, with the bounds of `limits`
    server                         checks the caller, by certificate or secret
    handlers, wire                 decode the call and encode the answer
    gate                           decides: exempt pods and those of other schedulers pass
      reservations/ledger          a pod with a reservation gets its node, or another one offered
      reservations/arrivals        a pod of a gang that is still being created gets its place
      reservations/ledger          a pod that no gang waits ahead of is admitted directly,
      reservations/capacity        within what the last plan leaves to its queue and on the nodes

A bind goes on in `permit`, preempt in `evictions/preemption`.
"""
