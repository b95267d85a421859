"""Copies of data on a node's own disk: made once a node, and used by all of a user's trainings.

A place holds one folder of a user's, ``sweep-data-UID``, for all studies. In it each copy has a key
(of the path, and of names, sizes and times at launch), and under that key:

- ``KEY.copy``: an exclusive ``flock`` of whoever copies. Others wait, or read the shared path.
- ``KEY.partial/``: what is copied so far, and a journal of its whole files. A copier that was
  killed has left its lock; the next one goes on from there, in the middle of a file too.
- ``KEY/``, renamed from the partial one when all is there, then ``KEY.json`` and ``KEY.files``.
  A copy exists once ``KEY.json`` does; one of an earlier boot of the node is none.
- ``KEY.use``: a shared ``flock`` of each training that reads the copy. The training's process
  inherits the descriptor, so that nothing is freed while it lives, whatever happens to its worker.
  Who removes a copy takes it exclusively first.

Under ``lock`` room is reserved: a partial copy counts as what it will be. No lock outlives its
process, and no lock file is ever removed, for another might hold it.

Whatever hinders a copy (no room, no place, a disk's error) is said, and training reads the shared
path. What makes an attempt be given back is only data that are not those of the launch.

``places`` finds the folder, ``cache`` keeps copies in it, ``copying`` and ``archives`` move bytes,
``making`` makes one copy and holds it against the record, ``stage`` does all of it for a training's
data sets, ``on_nodes`` for a trial on several, ``on_machine`` shows what there is.
"""
