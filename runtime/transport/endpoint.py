"""Where a run listens: ipc in a private folder, or tcp, on loopback unless an address is named."""

import ipaddress

from flowgraph.ir.errors import ConfigurationError


def listen_at(listen: str, folder: str, name: str) -> str:
    """The endpoint to bind for an option's text.

    "" is ipc in `folder` (mode 0700). "tcp" is loopback at any free port. `tcp://ADDRESS[:PORT]`
    is that address: loopback or not, it was asked for. Raises ConfigurationError for anything else,
    host names and `*` included: which interface a run is reachable on must not be a surprise.
    """
    if not listen:
        return f"ipc://{folder}/{name}"
    if listen == "tcp":
        return "tcp://127.0.0.1:*"
    address, port = _split(listen)
    shown = f"[{address}]" if address.version == 6 else str(address)
    return f"tcp://{shown}:{port or '*'}"


def is_loopback(endpoint: str) -> bool:
    """Whether only this machine can reach a tcp endpoint with a literal address."""
    return _split(endpoint)[0].is_loopback


def _split(text: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    wrong = ConfigurationError(
        f"cannot listen at '{text}'",
        hint="'tcp' for this machine only, or tcp://ADDRESS:PORT with a literal IP address",
    )
    scheme, _, rest = text.partition("://")
    host, port = rest, ""
    if rest.startswith("["):
        host, _, port = rest[1:].partition("]")
        port = port.removeprefix(":")
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    if scheme != "tcp" or (port not in ("", "*") and not port.isdigit()):
        raise wrong
    number = 0 if port in ("", "*") else int(port)
    if number > 65535:
        raise wrong
    try:
        return ipaddress.ip_address(host), number
    except ValueError as error:
        raise wrong from error
