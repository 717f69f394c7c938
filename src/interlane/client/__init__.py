"""A client of a live server: what the command line uses, and programs of yours.

``connection`` speaks HTTP, with nothing but the standard library; ``client`` has the verbs of
the command line, typed; ``aio`` the same for programs that await.
"""
