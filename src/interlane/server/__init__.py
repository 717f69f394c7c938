"""Body 2: this machine.  Real time, real processes, and a log that outlives the server."""
