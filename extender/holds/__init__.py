"""What must wait? Binds are held until their gang can start whole.

Told what happened, `book` says what to do; `barrier` does it. Where to look:

* the words (what can happen, what is to be done, why, how long):
  `events` `instructions` `states` `cause` `limits`
* the rules of one call (may it come in, may it go on waiting): `entry` `standing`
* the rules of a gang (is it enough, until its bindings are sent, from then on, the end for all):
  `quorum` `gathering` `forward` `ending`
* the memory: `table` `assembly` `alarms` `backoff` `patience` `recent` `story`
* what must always be true: `invariants`
* the outside (what we ask of others, the mirror, the timer): `facts` `doors` `mirror` `looptimer`

All but `barrier`, `mirror` and `looptimer` are pure: no clock, no threads, no I/O, no chance.
"""
