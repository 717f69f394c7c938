"""Which functions are warm, and where: decisions about replicas, without clock or network.

``scheduler`` is told events and answers with actions (``events``); it keeps one ``ledger`` of
replicas beside jobs.  ``watch`` has forecasts and advice for each function, which live as long
as it does: ``advise`` says how many replicas to want, in several ways; ``portfolio`` follows
the way that has cost least; ``costs`` says what warmth is worth, ``rank`` who is worth least.
``learned`` takes what was learned out and puts it back.  Simulator, reproductions and the live
gateway drive the same object.
"""
