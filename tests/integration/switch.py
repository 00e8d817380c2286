"""A network switch in user space whose lines are slow and lose frames: what `tc netem` does, where the kernel lacks it.

Run inside a network namespace:  python switch.py DELAY_SECONDS LOSS SEED INTERFACE...
Every frame that comes in on an interface is lost with that probability, else sent on after the delay, in order: to the
interface where its destination was last seen, or to all others.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import random
import select
import socket
import struct
import sys
import time

EVERYTHING = 0x0003  # ETH_P_ALL
_SIOCETHTOOL = 0x8946
_SWITCH_OFF = (0x17, 0x1F, 0x24)  # checksums, TCP's and general segmentation: what a network card would have to finish
_BUFFER = 4 << 20


def frames_as_on_a_wire(interface: str) -> None:
    """Let the kernel send whole frames with their checksums; a virtual line otherwise leaves both undone."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        for command in _SWITCH_OFF:
            value = (ctypes.c_uint32 * 2)(command, 0)
            request = struct.pack("16sP", interface.encode(), ctypes.addressof(value))
            fcntl.ioctl(any_socket, _SIOCETHTOOL, request)


class Switch:
    """The ports, what was learnt of who is where, and the frames under way."""

    def __init__(self, interfaces: list[str], delay: float, loss: float, seed: int) -> None:
        self._ports = [_port(name) for name in interfaces]
        self._delay, self._loss, self._coin = delay, loss, random.Random(seed)
        self._where: dict[bytes, socket.socket] = {}
        self._under_way: list[tuple[float, int, socket.socket, bytes]] = []
        self._count = 0

    def run(self) -> None:
        poll = select.epoll()
        by_number = {port.fileno(): port for port in self._ports}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        while True:
            wait = max(self._under_way[0][0] - time.monotonic(), 0.0) if self._under_way else 1.0
            for number, _ in poll.poll(wait):
                self._take(by_number[number])
            self._deliver(time.monotonic())

    def _take(self, port: socket.socket) -> None:
        while True:
            try:
                frame, (_, _, kind, _, _) = port.recvfrom(65536)
            except BlockingIOError:
                return
            if kind == socket.PACKET_OUTGOING:
                continue
            self._where[frame[6:12]] = port
            if self._coin.random() >= self._loss:
                self._count += 1
                heapq.heappush(self._under_way, (time.monotonic() + self._delay, self._count, port, frame))

    def _deliver(self, now: float) -> None:
        while self._under_way and self._under_way[0][0] <= now:
            _, _, source, frame = heapq.heappop(self._under_way)
            known = self._where.get(frame[:6])
            for port in [known] if known else self._ports:
                if port is not source:
                    try:
                        port.send(frame)
                    except OSError:  # a full queue or a line that is down loses frames too
                        continue


def _port(name: str) -> socket.socket:
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
    port.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
    port.bind((name, 0))
    port.setblocking(False)
    return port


if __name__ == "__main__":
    if sys.argv[1] == "wire":
        frames_as_on_a_wire(sys.argv[2])
    else:
        Switch(sys.argv[4:], float(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])).run()
