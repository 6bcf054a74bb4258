"""Ten times kill -9 in the middle: what is there in the end is what an undisturbed run makes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import bnncert
from bnncert.results.configuration import read_configuration
from bnncert.results.plan import plan_experiment
from bnncert.results.runner import Place, run_plan
from bnncert.results.store import ResultsFile
from tests.results.tiny import CONFIG, content, write_files

#: Forks, so that only the first process pays for the imports.  The moments come from a seed.
DRIVER = """
import os, random, signal, sqlite3, sys, time
from pathlib import Path
import bnncert.results.instance as answering
from bnncert.results.configuration import read_configuration
from bnncert.results.plan import plan_experiment
from bnncert.results.runner import Place, run_plan
from bnncert.results.store import ResultsFile

quick = answering.answer
def slow(*arguments):
    time.sleep(0.03)
    return quick(*arguments)
answering.answer = slow

def rows():
    # Read without getting in the writer's way.
    try:
        reader = sqlite3.connect("file:killed.sqlite?mode=ro", uri=True, timeout=0)
        try:
            return reader.execute("SELECT count(*) FROM results").fetchone()[0]
        finally:
            reader.close()
    except sqlite3.OperationalError:
        return 0

moments = random.Random(2024)
killed = 0
for number in range(10):
    before = rows()
    child = os.fork()
    if child == 0:
        with ResultsFile("killed.sqlite") as results:
            plan = plan_experiment(read_configuration(Path("tiny.json")))
            run_plan(plan, results, place=Place(workers=0))
        os._exit(0)
    # The first two at any moment, even before there are tables; then once a new row is there.
    until = time.monotonic() + 60
    while number >= 2 and rows() <= before and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(moments.uniform(0.0, 0.15))
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    killed += os.WIFSIGNALED(status)
print(killed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes of POSIX")
def test_ten_kills(folder: Path) -> None:
    # 102 instances of 0.03 s: ten runs that end soon after a new row do not get to the end.
    part = {**CONFIG["parts"][0], "radii": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], "certificates": True}
    write_files(folder, {**CONFIG, "parts": [part, CONFIG["parts"][1]]})
    plan = plan_experiment(read_configuration(Path("tiny.json")))
    assert len(plan.instances) == 102

    ended = subprocess.run(
        [sys.executable, "-c", DRIVER],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(bnncert.__file__).parents[1])},
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "10\n", "")
    with ResultsFile("killed.sqlite") as results:
        kept = results.rows()
        assert 0 < len(kept) < 102
        finished = run_plan(plan, results, place=Place(workers=0))
        # What was there before is there as it was, in the same places.
        assert results.rows()[: len(kept)] == kept
    assert len(finished.rows) == 102
    with ResultsFile("whole.sqlite") as results:
        run_plan(plan, results, place=Place(workers=0))
    killed, whole = content(folder / "killed.sqlite"), content(folder / "whole.sqlite")
    for tables in (killed, whole):
        for row in tables["results"]:
            # The folder is named after the results file.
            if row["certificate"] is not None:
                row["certificate"] = Path(row["certificate"]).name
    assert killed == whole
    names = {p.name for p in (folder / "whole-certificates").iterdir()}
    assert {p.name for p in (folder / "killed-certificates").glob("[!.]*")} == names
