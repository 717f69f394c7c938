"""The engine of one machine: shims, lanes, devices and the processes of replicas."""
