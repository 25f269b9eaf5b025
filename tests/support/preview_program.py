"""A program for sandboxes that answers HTTP as its visitors ask it to, also badly.

    python preview_program.py PORT

By the last part of the path; all but those at first end the connection:

echo       JSON of what was asked: the target, the headers in order, bytes and digest of the body
who        the same, with the number of the connection and of its requests
second     the same for the first request of a connection, and the end in the place of the next one
raw        the bytes of the query, in hex, and the end
reset      the same, and a broken connection
early      an answer before the body is read, which is then read
refuse     417 without reading a body
events     ten events, one each tenth of a second; the file `closed` says that nobody listened
flood      bytes until nobody wants them; the file `flooded` says how many there were
lazy       reads its body after a second, and answers with its size
long       a head of as many bytes as the query says
silent     nothing at all
twice      two answers, as ``SECONDS,HEX,HEX``, without an end
once       an answer, and the end, of which the answer says nothing
ws         a WebSocket without frames: what comes is sent back, until the other side ends
"""

import asyncio
import hashlib
import itertools
import json
import pathlib
import socket
import struct
import sys

NUMBERS = itertools.count()


async def head_of(reader):
    data = await reader.readuntil(b"\r\n\r\n")
    first, *lines = data[:-4].decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    return method, target, [line.split(": ", 1) for line in lines]


async def pieces(reader, headers):
    names = {name.lower(): value for name, value in headers}
    if names.get("transfer-encoding") == "chunked":
        while size := int(await reader.readline(), 16):
            yield (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        left = int(names.get("content-length", 0))
        while left:
            piece = await reader.read(min(left, 65536))
            assert piece
            left -= len(piece)
            yield piece


def answer(body, kind="text/plain", status="200 OK"):
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def serve(reader, writer):
    number, requests, what = next(NUMBERS), 0, ""
    try:
        while True:
            method, target, headers = await head_of(reader)
            path, _, query = target.partition("?")
            is_second = what == "second"
            what = path.rsplit("/", 1)[-1]
            requests += 1
            if is_second and what == "second":
                return
            if what in ACTIONS:
                await ACTIONS[what](reader, writer, headers, query)
                return
            if any(name.lower() == "expect" for name, _ in headers):
                writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            digest, size = hashlib.sha256(), 0
            async for piece in pieces(reader, headers):
                digest.update(piece)
                size += len(piece)
            said = {"method": method, "target": target, "headers": headers}
            said |= {"size": size, "sha256": digest.hexdigest()}
            if what == "who":
                said |= {"connection": number, "requests": requests}
            body = answer(json.dumps(said).encode(), "application/json")
            writer.write(body if method != "HEAD" else body[: body.index(b"\r\n\r\n") + 4])
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def raw(reader, writer, headers, query):
    writer.write(bytes.fromhex(query))
    await writer.drain()


async def reset(reader, writer, headers, query):
    await raw(reader, writer, headers, query)
    await asyncio.sleep(0.3)
    linger = struct.pack("ii", 1, 0)
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


async def early(reader, writer, headers, query):
    writer.write(answer(b"early"))
    async for _ in pieces(reader, headers):
        pass


async def refuse(reader, writer, headers, query):
    writer.write(answer(b"no", status="417 Expectation Failed"))


async def events(reader, writer, headers, query):
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
    gone = asyncio.ensure_future(reader.read())
    for number in range(int(query or 10)):
        writer.write(b"data: %d\n\n" % number)
        await writer.drain()
        done, _ = await asyncio.wait({gone}, timeout=0.1)
        if done:
            pathlib.Path("closed").touch()  # noqa: ASYNC240  nobody else is served
            return
    gone.cancel()


async def flood(reader, writer, headers, query):
    writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
    count = 0
    try:
        while True:
            writer.write(bytes(65536))
            await writer.drain()
            count += 65536
            pathlib.Path("flooded").write_text(str(count))  # noqa: ASYNC240  likewise
    except ConnectionError:
        pass


async def lazy(reader, writer, headers, query):
    await asyncio.sleep(1)
    size = 0
    async for piece in pieces(reader, headers):
        size += len(piece)
    writer.write(answer(str(size).encode()))


async def twice(reader, writer, headers, query):
    seconds, first, second = query.split(",")
    writer.write(bytes.fromhex(first))
    if float(seconds):
        await writer.drain()
        await asyncio.sleep(float(seconds))
    writer.write(bytes.fromhex(second))
    await reader.read()


async def once(reader, writer, headers, query):
    writer.write(answer(b"once"))


async def long(reader, writer, headers, query):
    writer.write(b"HTTP/1.1 200 OK\r\nX: " + b"x" * int(query) + b"\r\n\r\n")
    await writer.drain()


async def silent(reader, writer, headers, query):
    await reader.read()


async def ws(reader, writer, headers, query):
    writer.write(
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    )
    writer.write(json.dumps(headers).encode() + b"\n")
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()


ACTIONS = {
    each.__name__: each
    for each in (raw, reset, early, refuse, events, flood, lazy, long, silent, twice, once, ws)
}


async def main():
    server = await asyncio.start_server(serve, "127.0.0.1", int(sys.argv[1]), limit=1 << 18)
    await server.serve_forever()


asyncio.run(main())
