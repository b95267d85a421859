"""The keys under which sweep keeps things in Optuna's tables of attributes; no other module spells
one out.

Optuna's dashboard and notebooks show user attributes. Ours begin with ``sweep:``; the other keys
are Optuna's own, which its samplers and its dashboard read. A key that ends with a colon is
followed by what it is about.
"""

from __future__ import annotations

# System attributes of a study
SPEC = "sweep:study"  # the study file, as launch has read it
PARALLEL = "sweep:parallel"  # its max_parallel: claims look at it
STATE = "sweep:state"  # whether trials are to be pulled, and why not
FOLDER = "sweep:folder"  # where its files lie
ADDED = "sweep:added"  # how many trials `sweep add` has added to its file's
HOST = "sweep:host"  # the machine from which it was launched last
IDENTITY = "sweep:identity"  # the study's own, whatever its name; its folder says the same
WAVE = "sweep:wave:"  # by its name token: what was submitted
CANCEL = "sweep:cancel:"  # by the job: what sweep itself has cancelled of it
RECONCILED = "sweep:reconciled"  # when somebody last looked after it
SICK_NODE = "sweep:sick:"  # by the node: what is wrong with it
RESTORED = "sweep:finaliser:"  # by a wave's token: how often its finaliser was, and when
RELEASED = "sweep:released:"  # the same: how often what was held of it was released
NO_SUBMIT = "sweep:nodes-may-not-submit"  # why a finaliser could not submit the next wave
FIRST_RUNG = "sweep:first_rung"  # what its pruner has made of "auto"
WARM_START = "sweep:warm_start"  # the earlier study's trials from which its sampler learns
NOTICE = "sweep:notice:"  # by the event: who tells the user of it, and what came of that
PREPARED = "sweep:prepared:"  # by the number of a waiting trial: its parameters, while others train
WANTED = "sweep:wanted:"  # the same of one that was claimed without: its slot waits for them
PROPOSER = "sweep:proposer"  # the process that prepares them, and when it was seen
STAND_BY = "sweep:proposer-next"  # the one that takes over, or brings its sampler in
RETRIES = "sweep:retries"  # how often trials that were final have been made to run again
METRIC_NAMES = "study:metric_names"  # Optuna's: its dashboard writes them on its axes

# User attributes of a trial
END = "sweep:end"  # why it ended
DUPLICATE_OF = "sweep:duplicate_of"  # the number of a complete trial with the same configuration
REPLICATES = "sweep:replicates"  # what each training of a trial with several has given
RETRIED = "sweep:retried"  # what it had come to each time that a launch gave it back
GPU_SECONDS = "sweep:gpu_s"  # by the attempt's number: its part of a GPU that trials share
PROFILE = "sweep:profile"  # the same: what was seen of it, and what holds it back
ENERGY = "sweep:energy"  # by the attempt's number: what it used

# System attributes of a trial
RUNG = "sweep:rung:"  # by the rung: the objective there
PROMOTED = "sweep:promoted"  # the highest rung that it may leave behind
LEAVE = "sweep:leave"  # somebody wants it cancelled: its task is to end it
PROPOSED = "sweep:proposed"  # where its parameters came from, and how long its task waited
CONSTRAINTS = "constraints"  # Optuna's: by how much it breaks each
FIXED_PARAMS = "fixed_params"  # Optuna's: what a sampler must take
