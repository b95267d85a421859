"""``python -m sweep`` is ``sweep``."""

from sweep.cli import main

main()
