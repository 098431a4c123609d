"""One module for each kind of trap: from what was seen to what somebody stepped into."""
