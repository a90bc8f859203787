"""Headless Chromium on the server's own page, driven over its DevTools.

usage: browser.py CHROMIUM URL    prints the browser's process group, "open", "echoed"; then the page
                                  stays open until somebody ends us
"""
import asyncio
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request

import websockets


def ends_with_us():
    os.setsid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


async def page_says(devtools, script):
    """What the script evaluates to in the page."""
    page_says.calls += 1
    await devtools.send(json.dumps({"id": page_says.calls, "method": "Runtime.evaluate",
                                    "params": {"expression": script}}))
    while True:
        answer = json.loads(await devtools.recv())
        if answer.get("id") == page_says.calls:
            return answer["result"]["result"].get("value")


page_says.calls = 0


async def until(devtools, script):
    while not await page_says(devtools, script):
        await asyncio.sleep(0.05)


async def main(chromium, url, home):
    browser = subprocess.Popen(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--no-first-run", "--disable-background-networking", "--user-data-dir=" + home,
         "--remote-debugging-port=0", url],
        stderr=subprocess.PIPE, preexec_fn=ends_with_us, text=True)
    print("browser", browser.pid, flush=True)
    for line in browser.stderr:
        if "DevTools listening on" in line:
            break
    else:
        sys.exit("the browser does not start")
    port = line.split("ws://")[1].split("/")[0].rsplit(":", 1)[1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as targets:
        page = next(t for t in json.load(targets) if t["type"] == "page")
    async with websockets.connect(page["webSocketDebuggerUrl"], ping_interval=None) as devtools:
        await until(devtools, "document.getElementById('state')?.textContent === 'open'")
        print("open", flush=True)
        await page_says(devtools, "document.getElementById('text').value = 'from a browser';"
                                  "document.getElementById('say').requestSubmit()")
        await until(devtools, "document.getElementById('log').textContent"
                              ".includes('from a browser')")
        print("echoed", flush=True)
        await asyncio.sleep(3600)


with tempfile.TemporaryDirectory() as home:
    asyncio.run(main(sys.argv[1], sys.argv[2], home))
