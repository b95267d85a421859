"""Which sweep this is: setup.cfg reads it from here, so that no command reads it from what is
installed."""

VERSION = "0.1.0"
