"""The scheduler: events in, actions out; pure, and the same for every engine.

``scheduler`` has the event table and the phases in order, ``state`` what they share,
``lifecycle`` the states of a job, ``rest`` the loop that engines run.  Each phase is an object
in a module of its own: ``walk`` and ``backfill``, ``plans``, ``preempt``, ``waking``,
``giving_up``, ``grow``.  Below them, ``ledger`` counts what is free and is the only judge of
what fits, ``queue`` and ``running`` know who waits and who runs, ``view`` is what placers see.
``compiled`` has the inner loops over ``interlane.tables``.

May be touched: a phase reads all of the state, and changes it by the methods of ``State``, the
ledger and the queues, so that no two tables ever disagree; ``Scheduler.check`` proves it.  The
package knows no clock, no randomness but a seed, no engine, no file and no log.  Whatever is
changed here must give the same actions for the same events, or say in which case it does not.
"""
