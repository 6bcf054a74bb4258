"""Small files with large numbers: a time limit holds in every loop, and memory in every step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from bnncert.kernel import RejectedError, UnreadableError, check, container
from bnncert.kernel.rules.product import product_network
from tests.kernel.claim_bombs import GROUPS, random_network
from tests.kernel.claims import pack

pytest.importorskip("resource")

#: MiB of address space that a check may take, seconds of its time limit, and seconds of the
#: processor that it may need: the processor does not count what other programs take.
MEMORY, LIMIT, CPU = 900, 0.25, 2.25

#: Limits of files that reach their loop late, or need their memory late.
LONGER = dict.fromkeys(("changed_leaf", "changed_far", "changed_wide", "wide_leaf"), 0.6)
LONGER |= dict.fromkeys(("long_values", "merged_changes", "merged_pairs", "merged_values"), 1.2)
LONGER |= {"long_place": 0.6, "buckets": 0.6, "many_points": 1.2}
LONGER |= dict.fromkeys(("mergers", "deep_splits", "split_values", "many_cuts"), 40.0)

CHILD = """
import json, resource, sys, time
from pathlib import Path
from bnncert.kernel import RejectedError, UnreadableError, check
from tests.kernel.claim_bombs import GROUPS
from tests.kernel.claims import pack

name, folder, memory, limits, usual = json.loads(sys.argv[1])
for called, make in GROUPS[name].items():
    bomb = make()
    path = pack(Path(folder) / called, bomb.sections)
    networks = {"network": bomb.network, "other": bomb.other}
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    top = used + memory * 2**20
    resource.setrlimit(resource.RLIMIT_AS, (top, resource.RLIM_INFINITY))
    start, answer = time.process_time(), "accepted"
    try:
        check(path, **networks, timeout=limits.get(called, usual))
    except (RejectedError, UnreadableError) as error:
        answer = str(error)
    seconds = time.process_time() - start
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
    print(json.dumps([called, path.stat().st_size, seconds, answer]), flush=True)
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
@pytest.mark.parametrize("name", GROUPS)
def test_time_and_memory_are_limited(name: str, tmp_path: Path) -> None:
    given = json.dumps([name, str(tmp_path), MEMORY, LONGER, LIMIT])
    threads = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
    answer = subprocess.run(
        [sys.executable, "-c", CHILD, given],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, **threads},
    )
    assert answer.stderr == ""
    found = [json.loads(line) for line in answer.stdout.splitlines()]
    assert [one[0] for one in found] == list(GROUPS[name])
    for bomb, size, seconds, message in found:
        assert size < 2**18, bomb
        assert "MemoryError" not in message, (bomb, message)
        assert seconds < CPU + LONGER.get(bomb, LIMIT) - LIMIT, (bomb, seconds, message)


def test_the_clock_of_a_check_ends_with_it(tmp_path: Path) -> None:
    """The rules that a check shares with questions have no limit outside of it."""
    net = random_network(4, 5, 3)
    with pytest.raises(RejectedError, match="did not end within"):
        check(pack(tmp_path / "c", GROUPS["copies"]["late_failure"]().sections), net, timeout=1e-9)
    assert product_network(net, net).shared == (5,)


def test_sections_that_unpack_to_more_than_they_announce_are_refused(tmp_path: Path) -> None:
    """Neither is unpacked further than it announces, and no more than a section can have."""
    net, path = random_network(4, 5, 3), tmp_path / "packed.cert"
    zeros = zlib.compress(bytes(2**28), 9)
    assert len(zeros) < 2**19
    for announced in (0, 2**20, container.MOST_BYTES, container.MOST_BYTES + 1, 2**28, 2**32 - 1):
        head = announced.to_bytes(4, "little") + len(zeros).to_bytes(4, "little")
        path.write_bytes(container.MAGIC + head + zeros)
        with pytest.raises(UnreadableError, match=r"another length than announced|a section of"):
            check(path, net)
