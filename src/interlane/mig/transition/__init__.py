"""From what runs now to what is asked for, without interrupting anybody.

``standing`` reads what runs now, ``joint`` chooses where to go with as much as possible left in
place, ``order`` finds a way there on which no service falls below its floor, ``exchange`` is
the published baseline, ``replay`` says whether to believe any of them.  ``journal`` and ``run``
carry a transition out, through crashes and failures.
"""
