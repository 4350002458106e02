"""Twenty open pages: `python clients.py nicegui|starlette PORT SECS PID`; prints one JSON object.

Beside them, once a second, a page is opened anew and its time is taken. PID is the server's.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import sys
import time

import httpx
import psutil

PAGES = 20
EVERY_SECS = 2.0


class Seen:
    """What the open pages got."""

    updates = 0
    bytes = 0


async def nicegui_client(base: str, seen: Seen, until: float) -> None:
    """Open the page as a browser does: get it, then keep its WebSocket open, over which updates come."""
    import socketio

    async with httpx.AsyncClient() as http:
        text = (await http.get(base)).text
    found = re.search(r"[\"']client_id[\"']:\s*[\"']([0-9a-f-]+)[\"']", text)
    assert found, "the page names no client_id"
    socket = socketio.AsyncClient()

    @socket.on("*")
    async def on_any(event: str, data: object = None) -> None:
        if event == "update":
            seen.updates += 1
            seen.bytes += len(json.dumps(data))

    query = f"client_id={found[1]}&next_message_id=0"
    await socket.connect(f"{base}?{query}", socketio_path="/_nicegui_ws/socket.io", transports=["websocket"])
    shake = {"client_id": found[1], "document_id": found[1], "tab_id": found[1], "old_tab_id": None}
    await socket.emit("handshake", {**shake, "next_message_id": 0})
    await asyncio.sleep(max(0.0, until - time.monotonic()))
    await socket.disconnect()


async def starlette_client(base: str, seen: Seen, until: float) -> None:
    """Open the page, then ask for its parts every two seconds, as its JavaScript would."""
    async with httpx.AsyncClient() as http:
        await http.get(base)
        while time.monotonic() < until:
            await asyncio.sleep(EVERY_SECS)
            seen.bytes += len((await http.get(f"{base}/parts")).content)
            seen.updates += 1


async def main(kind: str, port: int, secs: float, pid: int) -> None:
    base, seen, server = f"http://127.0.0.1:{port}", Seen(), psutil.Process(pid)
    latencies: list[float] = []
    memory = [server.memory_info().rss]
    until = time.monotonic() + secs
    client = nicegui_client if kind == "nicegui" else starlette_client
    pages = [asyncio.create_task(client(base, seen, until)) for _ in range(PAGES)]
    cpu = sum(server.cpu_times()[:2])
    async with httpx.AsyncClient(timeout=60) as http:
        while time.monotonic() < until:
            await asyncio.sleep(1)
            began = time.monotonic()
            (await http.get(base)).raise_for_status()
            latencies.append(time.monotonic() - began)
            memory.append(server.memory_info().rss)
    busy = sum(server.cpu_times()[:2]) - cpu
    ended = await asyncio.gather(*pages, return_exceptions=True)
    half = len(memory) // 2
    told = {
        "failed_pages": sum(isinstance(one, BaseException) for one in ended),
        "updates": seen.updates,
        "update_bytes": seen.bytes / max(1, seen.updates),
        "page_ms_p50": 1000 * statistics.median(latencies),
        "page_ms_max": 1000 * max(latencies),
        "memory_before": memory[0],
        "memory_half": max(memory[: half + 1]),
        "memory_end": max(memory[half:]),
        "cores": busy / secs,
        "why": next((repr(one) for one in ended if isinstance(one, BaseException)), ""),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
