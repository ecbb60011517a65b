"""The one place where sockets are made: their options, and why.

High-water marks are off: what bounds the control channel is work in flight, which the orchestrator
counts, and what bounds bulk data is credits; a full queue would otherwise drop (ROUTER) or block
(DEALER) in silence.
"""

import zmq

from flowgraph.runtime.transport.keys import KeyPair

Socket = zmq.Socket[bytes]
Context = zmq.Context[zmq.Socket[bytes]]

LINGER_MS = 2000
"""How long a closing socket may still send: a last `Failed` must not be lost with the process."""

SEND_MS = 10_000
"""How long a send may find nobody at the other end: only a server that shut us out has none."""

ZAP_DOMAIN = b"flowgraph"


def make_socket(context: Context, kind: int, *, max_bytes: int = -1) -> Socket:
    """A socket with this project's options, for ipc, or for tcp without protection.

    max_bytes: a peer that sends a longer frame is cut off before memory is taken for it.
    """
    socket: Socket = context.socket(kind)
    socket.setsockopt(zmq.SNDHWM, 0)
    socket.setsockopt(zmq.RCVHWM, 0)
    socket.setsockopt(zmq.LINGER, LINGER_MS)
    socket.setsockopt(zmq.SNDTIMEO, SEND_MS)
    socket.setsockopt(zmq.MAXMSGSIZE, max_bytes)
    return socket


def require_keys(socket: Socket, own: KeyPair) -> None:
    """Makes it a CURVE server: peers must know its public key, and a `Gate` lets them in by theirs.

    Without a `Gate` in the socket's context the handshake never ends: nobody is let in by mistake.
    """
    socket.setsockopt(zmq.CURVE_SERVER, 1)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
    socket.setsockopt(zmq.ZAP_DOMAIN, ZAP_DOMAIN)
    socket.setsockopt(zmq.ZAP_ENFORCE_DOMAIN, 1)


def present_keys(socket: Socket, own: KeyPair, server_public: bytes) -> None:
    """Makes it a CURVE client of the server with this public key, and of no other."""
    socket.setsockopt(zmq.CURVE_SERVERKEY, server_public)
    socket.setsockopt(zmq.CURVE_PUBLICKEY, own.public)
    socket.setsockopt(zmq.CURVE_SECRETKEY, own.secret)
