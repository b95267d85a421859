"""The embedded PostgreSQL server: start it, find it, stop it.

One server a user and runs folder, its data in ``runs/.postgres``. It is started by whichever
command needs it first, outlives that command, and is stopped by ``sweep db stop`` or, once nothing
has used it for ten minutes, by its watcher.
"""
