"""The work of ``interlane demo``: scripts that know nothing of sharing."""
