"""The apps that the tests serve with real servers: ``uvicorn apps:NAME``."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI, Request, WebSocket
from starlette.responses import StreamingResponse
from starlette.websockets import WebSocketDisconnect

from tollgate_limiter import Key, Limiter
from tollgate_limiter.asgi import TollgateMiddleware

BY_AGENT = Key.header("x-agent-id")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, str]]:
    yield {"started": "yes"}


def limited(lanes: dict[str, str], shared: str | None = None, **settings: Any) -> FastAPI:
    app = FastAPI(lifespan=lifespan)
    limiter = Limiter({"lanes": lanes}, agents=1_000, shared=shared)
    app.add_middleware(TollgateMiddleware, limiter=limiter, key=BY_AGENT, **settings)
    return app


# Several workers, one slab if TOLLGATE_SHARED names it.
workers = limited({"api": "100/day"}, shared=os.environ.get("TOLLGATE_SHARED") or None)


@workers.get("/")
async def worker() -> int:
    return os.getpid()


# One worker, everything else.
app = limited(
    {"api": "2/day", "many": "1000/day", "ws/messages": "2/day", "ws/connections": "held 1"},
    lane="api",
    routes={
        "/many/{rest:path}": "many",
        "/ws": "many",
        "/crash": "many",
    },
    allow_routes=["GET /health"],
    messages="ws/messages",
    connections="ws/connections",
)
go = asyncio.Event()
read = 0


@app.get("/health")
async def health(request: Request) -> dict[str, Any]:
    return {"started": request.state.started, "read": read}


@app.post("/upload")
@app.post("/many/upload")
async def upload(request: Request) -> int:
    global read
    async for chunk in request.stream():
        read += len(chunk)
    return read


@app.get("/many/stream")
async def stream() -> StreamingResponse:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"first"
        await go.wait()
        yield b"last"

    return StreamingResponse(chunks())


@app.post("/many/go")
async def let_go() -> None:
    go.set()


@app.get("/agents/{id}")
async def agent(id: int) -> dict[str, int]:
    return {"id": id}


@app.websocket("/once")
@app.websocket("/ws")
async def echo(websocket: WebSocket) -> None:
    await websocket.accept()
    try:
        # Ends when the client leaves.
        while True:
            await websocket.send_text(await websocket.receive_text())
    except WebSocketDisconnect:
        pass


@app.websocket("/crash")
async def crash(websocket: WebSocket) -> None:
    await websocket.accept()
    raise RuntimeError("on purpose")
