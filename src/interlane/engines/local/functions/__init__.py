"""Processes of replicas: forked by a server that has imported what they need."""
