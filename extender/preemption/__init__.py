"""May those be evicted? What kube-scheduler's own preemption is answered.

judgement    which candidate nodes may lose their victims
grants       what was allowed and may not have happened yet
"""
