"""What have we heard? A mirror of the cluster, fed by changes, read as snapshots."""
