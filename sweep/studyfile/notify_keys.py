"""The section ``notify``: who is told what becomes of a study."""

from __future__ import annotations

from sweep.core.study import NOTICES, Notify
from sweep.studyfile.kinds import Command, Email
from sweep.studyfile.rules import TextList, Word
from sweep.studyfile.sections import Key, Section

NOTIFY = Section(
    "notify",
    Notify,
    {
        "email": Key(
            Email(),
            "Slurm sends a mail when the finaliser of an array has ended: true for the user's own "
            "address as the site knows it, or an address. Needs Slurm, and a site that sends mail.",
            example=True,
            aliases="mail mail_user",
        ),
        "command": Key(
            Command(),
            "Run once for each event, in the workdir, for at most a minute, with a JSON object on "
            "its standard input: event, study, reason, counts, best and more.",
            example=["python", "tell.py"],
            aliases="cmd script run hook exec",
        ),
        "on": Key(
            TextList(Word(NOTICES)),
            "The events that run the command. ended: all trials are final; held: the study waits "
            "for a correction; stuck: trials are left, and no array could be submitted.",
            example=["ended", "held"],
            aliases="events when",
        ),
    },
)
