"""Binds that wait until their gang is complete.

A bind goes through the modules in this order; events go in, instructions come out:

    runner       the hook port calls `bind`; a full node delays the call       Arrived
    machine      checks the call (`checks`, with facts of the cache in `facts`)
    assembling   the member waits; with the last one the PodGroup is read      MarkWaiting, Verify
    runner       the API server answered about the PodGroup                    Verified
    assembling   all members still fit, or the attempt ends                    Bind, Answer, BackOff
    runner       the binder has the outcome of each binding                    Settled
    machine      answers the call of each outcome                              Answer
    committing   counts outcomes; a gang that stays partial is evicted   MarkBound, EvictPartial

`states` has the tables of all moves, `messages` all events, instructions and causes, `timeouts` all
time limits. Only `runner` knows threads and clocks; all else is pure.
"""
