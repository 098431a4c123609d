"""Decides which gangs start, on which nodes, and which pods are evicted for them.

`planning_loop` takes a snapshot of the cache and calls `planner.make_plan`, which goes through the
modules in this order:

    policy            actions, plugins and their arguments, as the policy file has them
    accounting        what gangs, queues and namespaces use and request: state
    session           the state of one cycle; extension_points asks the plugins
    actions/enqueue   which gangs may ask for capacity at all
    actions           allocate, backfill, reclaim, preempt, in the order of the policy
      startable       which members of a gang may start
      node_ranking    the best node of each pod, in free_capacity
      victims         the fewest pods to evict for a gang that starves
    actions/reserved  capacity for gangs that have waited long, and its use by short ones
    verdicts          why each gang runs, starts or waits
    plan              the result, an immutable value

Everything here is pure: a snapshot and a policy give one plan. `explain` plans again with changes.
"""
