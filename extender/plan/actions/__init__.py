"""The actions: what a cycle does, one after the other, in the order the policy names them."""
