"""Leader election by a Lease, and the fencing of writes."""
