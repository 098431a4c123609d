"""The actions of a cycle, in the order of the policy."""
