"""Inside the sandbox: the agent's only way to a model.

A program of its own, which needs nothing but the standard library::

    python -I -S relay.py PORT SOCKET COMMAND...

There is no network in the sandbox. The relay listens on ``127.0.0.1:PORT``, carries
every connection to the unix socket ``SOCKET``, where the gateway answers, and runs the
command. It ends with the command, with its status.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading

_NOT_FOUND = 127
_BY_SIGNAL = 128


def main(arguments: list[str]) -> int:
    """Relay for one command; returns its status, or 128 and the signal's number."""
    port, path, command = int(arguments[0]), arguments[1], arguments[2:]
    server = socket.create_server(("127.0.0.1", port), backlog=64)
    threading.Thread(target=_serve, args=(server, path), daemon=True).start()
    try:
        status = subprocess.call(command)
    except OSError as error:
        sys.stderr.write(f"{command[0]}: {error.strerror}\n")
        return _NOT_FOUND
    return status if status >= 0 else _BY_SIGNAL - status


def _serve(server: socket.socket, path: str) -> None:
    while True:
        inner, _ = server.accept()
        outer = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            outer.connect(path)
        except OSError:
            inner.close()
            outer.close()
            continue
        for source, target in ((inner, outer), (outer, inner)):
            threading.Thread(target=_pump, args=(source, target), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
