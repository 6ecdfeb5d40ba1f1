"""The examples of the documentation, run in the order of the page: they share names, as a session of a reader does."""

import doctest
import re
from pathlib import Path

import pytest

import tollgate_limiter

HERE = Path(__file__).parent
PAGES = [HERE.parent / "README.md", HERE.parents[2] / "docs" / "python.md"]


def run(name: str, text: str) -> None:
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    test = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, name, 0)
    assert test.examples, f"{name} has no example"
    assert runner.run(test).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_of_a_page_do_what_they_show(page: Path) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    # Code without prompts gets them, so that it runs in the same session.
    run(page.name, "\n".join(block if ">>> " in block else prompted(block) for block in blocks))


def prompted(block: str) -> str:
    lines = [line for line in block.splitlines() if line.strip()]
    before = [""] + lines[:-1]
    begins = [line[0] not in " )]}" and not above.startswith("@") for line, above in zip(lines, before)]
    return "\n".join((">>> " if new else "... ") + line for line, new in zip(lines, begins)) + "\n"


def test_the_example_of_the_package_does_what_it_shows() -> None:
    run("tollgate_limiter", tollgate_limiter.__doc__ or "")
