"""How often `verify` would fail a correct port by chance: correct pairs of every family, other weights and inputs.

    python bench/alarms.py [--sets 5] [--dtype float32 --dtype bfloat16] [--family NAME]

Every set has its own random weights and inputs. Prints a line for each pair: the gates that fail, and the largest
errors; exits with 1 if one fails.
"""

from __future__ import annotations

import argparse
import os
import sys

os.environ.setdefault("KERAS_BACKEND", "jax")


def main() -> int:
    """Verify every example of every family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--dtype", action="append", choices=["float32", "bfloat16", "float16"])
    parser.add_argument("--family", default="")
    given = parser.parse_args()

    from parity_tests.faults.run import fault_sets
    from wdport.parity.selftest.specimen import Specimen

    tried = alarms = 0
    for faults in fault_sets(given.family):
        for name, config in faults.examples.items():
            for dtype in given.dtype or ["float32", "bfloat16"]:
                for seed in range(given.first, given.first + given.sets):
                    verdict = Specimen(name, faults, config, seed, dtype).verify(seed=seed)
                    worst = {gate.name: gate.worst for gate in verdict.gates}
                    failed = ", ".join(gate.label for gate in verdict.gates if not gate.passed)
                    tried, alarms = tried + 1, alarms + bool(failed)
                    errors = f"float64 {worst['A']:.1e}, float32 {worst['B']:.2g}"
                    print(f"{faults.family.name}, {name}, {dtype}, seed {seed}: {errors} {failed}", flush=True)
    print(f"{alarms} alarms in {tried} correct pairs")
    return 1 if alarms else 0


if __name__ == "__main__":
    sys.exit(main())
