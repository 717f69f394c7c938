"""What runs on a node: the device plugin, and the agent that lets pods take turns."""
