"""What ``import interlane`` offers: runs, comparisons, and a client of a live server.

``simulate`` and ``compare`` are the use cases of the command line with frames and plots
instead of tables.  Names that are listed in ``interlane.__all__`` stay.
"""
