"""`--distributed`: the first process listens at the address that it was given, and nowhere else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.uses.sampling.test_devices import free_address

JOIN = """
import sys
from wdport.cli.machine import parse_devices
parse_devices(None, sys.argv[1])[1]()
for line in open("/proc/self/net/tcp").read().splitlines()[1:] + open("/proc/self/net/tcp6").read().splitlines()[1:]:
    where, state = line.split()[1], line.split()[3]
    if state == "0A" and int(where.rpartition(":")[2], 16) == int(sys.argv[2]):
        print(where.rpartition(":")[0])
"""


@pytest.mark.skipif(not Path("/proc/self/net/tcp6").exists(), reason="needs Linux")
def test_the_first_process_listens_on_the_named_address_alone() -> None:
    address = free_address()
    command = [sys.executable, "-c", JOIN, f"{address},0/1", address.rpartition(":")[2]]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
    (where,) = done.stdout.split()
    assert where in ("0100007F", "0000000000000000FFFF00000100007F")  # 127.0.0.1, also as an address of IPv6
