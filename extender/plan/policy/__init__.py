"""Reading a policy: actions, tiers of plugins, their arguments, and whose ways to follow."""
