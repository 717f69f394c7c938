"""Many programs on one device: who may hold memory, and whose iteration is next.  Pure."""
