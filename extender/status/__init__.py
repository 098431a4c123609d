"""Status, events and history of gangs and queues."""
