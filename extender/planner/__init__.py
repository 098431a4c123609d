"""Decides which gangs start, on which nodes, and which pods are evicted for them.

`planning_loop` takes a snapshot of the cache and calls `planner.make_plan`, which goes through the
modules in this order:

    policy            actions, plugins and their arguments, as the policy file has them
    accounting        what gangs, queues and namespaces use and request: state
    startable         what the gangs of each queue could start now
    session           the state of one cycle; extension_points asks the plugins
    actions/enqueue   which gangs may ask for capacity at all
    actions           allocate, backfill, reclaim, preempt, in the order of the policy
      node_ranking    the best node of each pod, in free_capacity
      starvation      the capacity that is held for gangs that have waited long
      victims         the fewest pods to evict for a gang that may reclaim or preempt
    actions/reserved  short gangs on capacity that is held for others
    verdicts          why each gang runs, starts or waits
    plan              the result, an immutable value

Everything here is pure: a snapshot and a policy give one plan. `explain` plans again with changes.
"""
