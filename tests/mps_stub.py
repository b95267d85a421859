"""A stand-in for NVIDIA's ``nvidia-cuda-mps-control``, its daemon and its server. It is not MPS.

It behaves as NVIDIA documents MPS: ``-d`` starts a daemon that listens in
$CUDA_MPS_PIPE_DIRECTORY, a second one there is refused, and commands on standard input are answered
(get_server_list, start_server -uid, get_client_list, terminate_client, quit [-t]). A server is
started for the first client. A fault of one client reaches all, names nobody, and new clients are
refused until the last of them is gone. Where the daemon is killed its server stays.

Clients of the model (tests/packed_gpu.py) hold a connection to the daemon's socket and read what
befalls them: "fault", "terminated" or "lost". ``install`` puts the program into a folder for PATH;
``set`` makes it refuse things. Its processes are called as the real ones: nvidia-cuda-mps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"
_SOURCE = '''#!{python} -IS
"""A stand-in for nvidia-cuda-mps-control, for tests: see tests/mps_stub.py."""
import json
import os
import select
import signal
import socket
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PIPE = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")
SOCKET = os.path.join(PIPE, "control")


def wanted(key):
    with open(os.path.join(HERE, "mps_stub.json")) as stream:
        return json.load(stream).get(key, "")


def send_command(text):
    found = socket.socket(socket.AF_UNIX)
    try:
        found.connect(SOCKET)
    except OSError:
        sys.exit("Cannot find MPS control daemon process")
    found.sendall(("command " + text).encode())
    found.shutdown(socket.SHUT_WR)
    said = b""
    while piece := found.recv(4096):
        said += piece
    return said.decode()


class Daemon:
    def __init__(self):
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(SOCKET)
        self.listener.listen(64)
        self.server = None
        self.clients = {{}}  # socket: pid
        self.faulted = False
        self.quit_at = None

    def log(self, file, who, line):
        path = os.path.join(os.environ.get("CUDA_MPS_LOG_DIRECTORY", PIPE), file)
        with open(path, "a") as stream:
            stream.write("[2026-02-06 09:34:17.770 %s   261] %s\\n" % (who, line))

    def start_server(self):
        if self.server is None and wanted("server") == "fail":
            self.log("server.log", "Other", "Initializing server process")
            self.log("server.log", "Legacy Server", "Failed to start : invalid argument")
            self.log("control.log", "Control", "Server 337 exited with status 1")
            return None
        if self.server is None and wanted("server") != "refuse":
            self.server = os.fork()
            if not self.server:
                os.closerange(3, 4096)
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                while True:
                    time.sleep(3600)
        return self.server

    def tell(self, word, chosen=None):
        for client in list(chosen or self.clients):
            try:
                client.sendall(word.encode() + b"\\n")
            except OSError:
                self.drop(client)

    def drop(self, client):
        self.clients.pop(client, None)
        client.close()
        if not self.clients:
            self.faulted = False

    def answer(self, words):
        if words == ["get_server_list"]:
            return "%d\\n" % self.server if self.server else ""
        if words[:2] == ["start_server", "-uid"]:
            self.start_server()
            return ""
        if words[0] == "get_client_list":
            pids = self.clients.values() if words[1] == str(self.server) else ()
            return "".join("%d\\n" % pid for pid in pids)
        if words[0] == "terminate_client":
            if wanted("terminate") == "refuse":
                return "cannot terminate client\\n"
            for client, pid in list(self.clients.items()):
                if words[1:] == [str(self.server), str(pid)]:
                    self.tell("terminated", [client])
                    self.drop(client)
            return ""
        if words[0] == "quit":
            self.quit_at = time.monotonic() + (float(words[2]) if words[1:2] == ["-t"] else 1e9)
            return ""
        return "unknown command\\n"

    def hear(self, other):
        try:
            said = other.recv(4096).decode().split()
        except OSError:
            said = []
        if other in self.clients:
            if not said:
                self.drop(other)
            elif said[0] == "fault":
                self.faulted = True
                self.tell("fault")
            return
        if said[:1] == ["command"]:
            try:
                other.sendall(self.answer(said[1:]).encode())
            except OSError:
                pass
        elif said[:1] == ["client"]:
            refused = self.faulted or self.start_server() is None or wanted("clients") == "refuse"
            other.sendall(b"not ready\\n" if refused else b"%d\\n" % self.server)
            if not refused:
                self.clients[other] = int(said[1])
                return
        other.close()

    def serve(self):
        while self.quit_at is None or (self.clients and time.monotonic() < self.quit_at):
            ready, _, _ = select.select([self.listener, *self.clients], [], [], 0.05)
            for one in ready:
                if one is self.listener:
                    other, _ = one.accept()
                    other.settimeout(10)
                    self.hear(other)
                elif one in self.clients:
                    self.hear(one)
            if self.server and os.waitpid(self.server, os.WNOHANG)[0]:
                self.server, self.faulted = None, False
                self.tell("lost")
                for client in list(self.clients):
                    self.drop(client)
        self.tell("lost")
        if self.server:
            os.kill(self.server, signal.SIGKILL)
            os.waitpid(self.server, 0)
        os.unlink(SOCKET)


if "-d" in sys.argv:
    if wanted("start") == "refuse":
        sys.exit("Failed to start: the GPU is in use")
    try:
        socket.socket(socket.AF_UNIX).connect(SOCKET)
    except OSError:
        if os.path.exists(SOCKET):
            os.unlink(SOCKET)
    else:
        sys.exit("An instance of this daemon is already running")
    daemon = Daemon()
    if os.fork():
        os._exit(0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    daemon.serve()
else:
    for line in sys.stdin:
        if line.split():
            sys.stdout.write(send_command(line))
'''


def install(folder: Path, python: str | None = None) -> Path:
    """Put the program into a folder, which is made, and return that: for PATH.

    Args:
        python: What runs it, where others than this user are to; absent: this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / PROGRAM
    path.write_text(_SOURCE.format(python=python or sys.executable))
    path.chmod(0o755)
    set_refusals(folder)
    return folder


def set_refusals(folder: Path, **words: str) -> None:
    """Say what it refuses from now on: start, server, clients, terminate, each "refuse" or "";
    a server may "fail" as well, with words in the logs."""
    path = folder / "mps_stub.json"
    path.with_suffix(".new").write_text(json.dumps(words))
    path.with_suffix(".new").replace(path)
