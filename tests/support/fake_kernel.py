"""A stand-in for a kernel: line commands on standard input, bytes on standard output."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time


def write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(1, view) :]


def main() -> None:
    signal.signal(signal.SIGINT, lambda *_: write_all(b"interrupted\n"))
    write_all(b"ready\n")
    for line in sys.stdin.buffer:
        word, _, rest = line.rstrip(b"\n").partition(b" ")
        if word == b"echo":
            write_all(rest + b"\n")
        elif word == b"flood":
            for number in range(int(rest)):
                write_all(b"%09d\n" % number * 1)
        elif word == b"block":
            size = int(rest)
            write_all(b"B" * size + b"end of block\n")
        elif word == b"record":
            size = int(rest)
            write_all(struct.pack(">IBBHI", 4 + size, 4, 0, 1, size) + b"R" * size)
        elif word == b"count":
            write_all(b"%d\n" % len(sys.stdin.buffer.read(int(rest))))
        elif word == b"env":
            write_all(os.environb.get(rest, b"-") + b"\n")
        elif word == b"where":
            write_all(os.getcwdb() + b" %d\n" % os.getsid(0))
        elif word == b"error":
            os.write(2, rest + b"\n")
        elif word == b"child":
            subprocess.Popen(["sleep", rest.decode()])
            write_all(b"child started\n")
        elif word == b"pause":
            time.sleep(float(rest))
        elif word == b"exit":
            write_all(b"last words\n")
            os._exit(int(rest))
        elif word == b"die":
            os.kill(os.getpid(), int(rest))


if __name__ == "__main__":
    main()
