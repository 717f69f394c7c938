"""Routes of the API, by subject.

Handlers that wait for the driver are coroutines; those that read the store are plain
functions, which run in threads.  Every route but the two probes needs a token, and says with
``Viewer``, ``User`` or ``Admin`` of which role.
"""
