"""What pacing is worth: the paced client beside urllib3's `Retry`, against the real server.

8 workers, 200 requests, a lane of 20 per second with a burst of 20: 9 s at best.

    TOLLGATE_SERVER=target/release/tollgate python bindings/python/bench/client.py
"""

import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/client"))

import rig  # noqa: E402

REQUESTS = 200
RUNS = 5


def main() -> None:
    program = os.environ.get("TOLLGATE_SERVER")
    if program is None:
        sys.exit("TOLLGATE_SERVER has to name the program `tollgate`")
    print("| client | 429s | time | of the ideal |\n|---|---:|---:|---:|")
    ratios: dict[str, list[float]] = {"paced": [], "retrying": []}
    for _ in range(RUNS):
        for name, found in ratios.items():
            # A server for each run, so that no run finds what the last one has used.
            with rig.tollgate(program) as url:
                took = getattr(rig, name)(url, REQUESTS)
            found.append(took.ratio)
            print(rig.row(name, took), flush=True)
    for name, found in ratios.items():
        print(f"{name}: {statistics.median(found):.2f} of the ideal, the median of {RUNS} runs")


if __name__ == "__main__":
    main()
