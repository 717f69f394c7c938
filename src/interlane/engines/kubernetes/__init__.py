"""Kubernetes as an engine: nodes are machines, pods are what runs, a binding is the commit."""
