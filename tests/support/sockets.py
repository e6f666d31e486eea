"""Sockets that a process and its descendants listen on (Linux)."""

import os
import socket
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

LISTENING = "0A"


def listening_addresses(root: int) -> dict[int, IPv4Address | IPv6Address]:
    """Port → the address on which a process, or one that it started, accepts TCP connections."""
    found, sockets = {}, _listening_sockets()
    for process in _descendants(root):
        with suppress(FileNotFoundError):  # it has just ended
            for name in os.listdir(f"/proc/{process}/fd"):
                with suppress(FileNotFoundError):  # the file is closed
                    inode = os.readlink(f"/proc/{process}/fd/{name}").removeprefix("socket:[").removesuffix("]")
                    found.update([sockets[inode]] if inode in sockets else [])
    return found


def is_loopback(address: IPv4Address | IPv6Address) -> bool:
    """Whether only this machine reaches the address. ::ffff:127.0.0.1 is 127.0.0.1 of an IPv6 socket."""
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def _listening_sockets() -> dict[str, tuple[int, IPv4Address | IPv6Address]]:
    """Inode of a socket → its port and address."""
    found = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING:
                address, port = words[1].split(":")
                found[words[9]] = (int(port, 16), _address(bytes.fromhex(address)))
    return found


def _address(data: bytes) -> IPv4Address | IPv6Address:
    """An address from its words of 32 bits in the machine's byte order."""
    words = [socket.htonl(int.from_bytes(data[at : at + 4], "big")) for at in range(0, len(data), 4)]
    return ip_address(b"".join(word.to_bytes(4, "big") for word in words))


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                parent = int((entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[1])
                children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for process in found:
        found += children.get(process, [])
    return found
