"""The clients against the real server, in real time."""

import os
import threading
from collections.abc import Iterator

import pytest
import rig


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    program = os.environ.get("TOLLGATE_SERVER")
    if program is None:
        assert os.environ.get("TOLLGATE_ALL") != "1", "TOLLGATE_SERVER has to name the program `tollgate`"
        pytest.skip("TOLLGATE_SERVER names no program `tollgate`; `make python` does")
    with rig.tollgate(program) as url:
        yield url


def test_a_paced_client_meets_no_429(server: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs: dict[str, rig.Took] = {}

    def run(name: str) -> None:
        runs[name] = getattr(rig, name)(server, 200 if name == "paced" else 60)

    # Beside each other, each with an agent of its own.
    threads = [threading.Thread(target=run, args=(name,)) for name in ("paced", "retrying")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with capsys.disabled():
        print()
        for name, took in runs.items():
            print(rig.row(name, took))
    assert runs["paced"].answers == {200: 200}
    assert runs["paced"].ratio < 4, "the machine is busy, but not so busy"
    retrying = runs["retrying"]
    # On a machine so busy that it cannot send faster than it may, it meets none; and takes the longer.
    assert retrying.answers[200] == 60 and (retrying.answers[429] > 0 or retrying.ratio >= 1)
