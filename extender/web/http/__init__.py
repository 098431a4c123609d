"""HTTP as both ports speak it: everything a stranger can send has a bound."""
