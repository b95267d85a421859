"""What a trial starts: argv = srun(container(torchrun(the user's command))), and its environment.

``filling`` puts the trial's values in, ``launchers`` starts ranks, ``runtimes`` brings the
software, ``rendezvous`` finds where ranks meet, ``assembly`` puts all together, and
``first_failure`` reads what a launcher says of a rank that failed.
"""
