"""MLflow's own server, over the database in which its tracker keeps what studies send."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from contextlib import suppress

STORE = "MLFLOW_BACKEND_STORE_URI"  # in the environment: an argument can be read by all
END_S = 5.0  # for it to end by itself


def serve(python: str, url: str, port: int) -> int | None:
    """Run MLflow's server on this machine's 127.0.0.1 until it ends, and end all of it.

    Args:
        python: An interpreter that has the whole of MLflow.
        url: Of the database, with its password.

    Returns:
        Its exit code; None after Ctrl-C.
    """
    environ = {name: text for name, text in os.environ.items() if not name.startswith("SWEEP_")}
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(
        [*command, "--workers", "1"], env={**environ, STORE: url}, start_new_session=True
    )
    try:
        return process.wait()
    except KeyboardInterrupt:
        return None
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server and its workers, which are a session of their own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(END_S)


def free_port() -> int:
    """Return a port that nobody listens at now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
