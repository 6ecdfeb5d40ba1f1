"""The examples of `docs/client.md` and of the modules, run; `https://api.example.com` is a server on loopback."""

import doctest
import importlib
import pkgutil
import re
from pathlib import Path
from typing import Any

import pytest
from scripted import Scripted

import tollgate_limiter.client

PAGE = Path(__file__).parents[4] / "docs/client.md"
MODULES = [module.name for module in pkgutil.iter_modules(tollgate_limiter.client.__path__)]


def test_the_examples_of_the_page_run(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 4
    session: dict[str, Any] = {}
    with Scripted().then(429, Retry_After="0.01") as server:
        for block in blocks:
            exec(block.replace("https://api.example.com", server.url), session)
        assert [asked.path for asked in server.asked] == ["/tasks"] * 4 + ["/tasks/1"]
    assert capsys.readouterr().out == "{}\n"
    session["openai_client"].close()


@pytest.mark.parametrize("name", ["", *(f".{name}" for name in MODULES if not name.startswith("_"))])
def test_the_examples_of_a_module_run(name: str) -> None:
    module = importlib.import_module(f"tollgate_limiter.client{name}")
    assert doctest.testmod(module).failed == 0
