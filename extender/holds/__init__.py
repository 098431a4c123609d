"""What must wait? Binds are held until their gang can start whole.

Told what happened, the pure state machine in `machine` says what is to be done, and `barrier`
does it; `mirror` is its view of the cluster, `looptimer` its time. On the `doorstep` a call waits
while kube-scheduler and we count differently.
"""
