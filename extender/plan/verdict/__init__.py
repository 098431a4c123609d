"""Why: where every gang stands, with a reason, a sentence and a remedy."""
