"""Stories run twice: on the embedded cluster under virtual time, and on the real control plane."""
