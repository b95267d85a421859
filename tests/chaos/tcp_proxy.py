"""A small TCP proxy that cuts, or swallows, what passes: a network that fails."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Forwards connections to one port; in a thread of its own.

    Attributes:
        port: Where it listens, on 127.0.0.1.
        cuts: Connections that it has cut.
    """

    def __init__(self, target: int) -> None:
        self.target = target
        self.cuts = 0
        self._silent = False
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._server, selectors.EVENT_READ)
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._lock = threading.Lock()
        self._over = False
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Break every connection, whatever is under way in it."""
        with self._lock:
            self.cuts += len(self._pairs) // 2
            for end in list(self._pairs):
                self._close(end)

    @contextlib.contextmanager
    def silence(self):  # type: ignore[no-untyped-def]
        """Pass nothing on, as a network that drops packets does, for as long as the block lasts."""
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def close(self) -> None:
        """End it and all its connections."""
        self._over = True
        self._thread.join(10)
        self.cut()
        self._server.close()

    def _serve(self) -> None:
        while not self._over:
            for key, _ in self._selector.select(0.02):
                with self._lock:
                    if key.fileobj is self._server:
                        self._accept()
                    elif not self._silent and isinstance(key.fileobj, socket.socket):
                        self._pass_on(key.fileobj)
            if self._silent:
                threading.Event().wait(0.02)

    def _accept(self) -> None:
        client, _ = self._server.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self.target), 5)
        except OSError:
            client.close()
            return
        for end, other in ((client, server), (server, client)):
            end.settimeout(5)
            self._pairs[end] = other
            self._selector.register(end, selectors.EVENT_READ)

    def _pass_on(self, end: socket.socket) -> None:
        other = self._pairs.get(end)
        if other is None:
            return  # closed a moment ago
        try:
            found = end.recv(65536)
            if found:
                other.sendall(found)
                return
        except OSError:
            pass
        self._close(end)

    def _close(self, end: socket.socket) -> None:
        for one in (end, self._pairs.get(end)):
            if one is not None and self._pairs.pop(one, None) is not None:
                self._selector.unregister(one)
                one.close()
