"""A WebSocket client of python3-websockets: says something, wants it back, then only stays.

usage: client.py URL [BYTES]    prints "open", "echoed", and how it ended
"""
import asyncio
import sys

import websockets


async def main(url, size):
    async with websockets.connect(url, ping_interval=None, max_size=None) as socket:
        print("open", flush=True)
        said = "x" * size
        await socket.send(said)
        if await socket.recv() != said:
            sys.exit("that is no echo")
        print("echoed", flush=True)
        try:
            await socket.recv()
        except websockets.ConnectionClosed as end:
            print("closed", end.rcvd.code if end.rcvd else "abnormally", flush=True)


asyncio.run(main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 5))
