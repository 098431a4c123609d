"""Who may ask: certificates of ours and of those who call."""
