"""What people want done, one function per use case; commands, pages and HTTP call these.

A use case takes words and documents as people write them, does all of it (read, solve, check,
verify) and returns one frozen answer.  It prints nothing: what is worth saying while it works
goes to a ``Reporter``.  How an answer looks is for the caller to decide, not what is in it.
"""
