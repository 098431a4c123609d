"""Where the extender is: where somebody says, or in the cluster that kubectl would ask."""
