"""What is installed in a cluster, and whether it is there."""
