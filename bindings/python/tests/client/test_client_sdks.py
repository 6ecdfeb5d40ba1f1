"""The recipe for the clients of OpenAI and Anthropic: they take an httpx2 client."""

import asyncio
import json

import anthropic
import httpx2
import openai
import pytest
from scripted import Scripted
from virtual import Time

from tollgate_limiter.client import RateLimited
from tollgate_limiter.client.httpx2 import AsyncPacedTransport, PacedTransport

COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
}
MESSAGE = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hi"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1},
}


def test_openai() -> None:
    time = Time()
    http_client = httpx2.Client(transport=PacedTransport(pacer=time.pacer(), sleep=time.sleep))
    with Scripted().then(429, Retry_After="171").then(429).then(200, json.dumps(COMPLETION)) as server:
        client = openai.OpenAI(api_key="k", base_url=server.url, http_client=http_client, max_retries=0)
        with client, pytest.raises(RateLimited) as raised:
            client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert raised.value.retry_after == 171
        time.now += 171
        http_client = httpx2.Client(transport=PacedTransport(pacer=time.pacer(), sleep=time.sleep))
        with openai.OpenAI(api_key="k", base_url=server.url, http_client=http_client, max_retries=0) as client:
            answer = client.chat.completions.create(model="m", messages=[{"role": "user", "content": "hi"}])
        assert (answer.choices[0].message.content, time.slept) == ("hi", [1])


async def anthropic_says(server: Scripted, time: Time) -> anthropic.types.Message:
    transport = AsyncPacedTransport(pacer=time.pacer(), sleep=time.sleep_async)
    http_client = httpx2.AsyncClient(transport=transport)
    options = {"api_key": "k", "base_url": server.url, "max_retries": 0}
    async with anthropic.AsyncAnthropic(http_client=http_client, **options) as client:  # type: ignore[arg-type]
        return await client.messages.create(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}])


def test_anthropic() -> None:
    time = Time()
    with Scripted().then(429, Retry_After="30").then(200, json.dumps(MESSAGE)) as server:
        answer = asyncio.run(anthropic_says(server, time))
    assert answer.content[0].type == "text" and answer.content[0].text == "hi"
    assert time.slept == [30]
    with Scripted().then(429, Retry_After="171") as server, pytest.raises(anthropic.APIConnectionError) as raised:
        asyncio.run(anthropic_says(server, time))
    # This SDK wraps what its transport raises.
    assert isinstance(raised.value.__cause__, RateLimited)
