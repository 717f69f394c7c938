"""How jobs get on beside each other: what device daemons report, and what follows."""
