"""The pure state machine of the holds."""
