"""Two schedulers, two databases, one small device: 200 times both start a worker at one moment.

    python tests/benchmarks/races.py                  # both of this user
    python tests/benchmarks/races.py --two-users      # the other one of `nobody`; as root
    python tests/benchmarks/races.py --fault          # what is decided before a claim can be seen is not decided again

Each worker takes more than half of the device, so that no two may be let go. The ledger is read from the process
table by an observer that knows neither queue: a keeper that has a child was let go, and its charge stands in its argv.
Target: 0 rounds in which more was let go than capacity less reserve. E27 is the baseline: a lock that is let go before
argv can be read admitted two on one figure once in 200 starts, publish-then-check without a lock never in 350.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from racing import CAPACITY_GIB, NOBODY, RESERVE_GIB, UNCHECKED, python_for, raced

from scheduler.clock import monotonic_s


def main() -> int:
    """Print what was seen; 1 if more was let go than there is, or if a planted fault was not seen."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--two-users", action="store_true")
    parser.add_argument("--fault", action="store_true")
    options = parser.parse_args()
    uids = (None, NOBODY if options.two_users else None)
    if not python_for(uids[1]):
        print("there is no interpreter with schedq that another user may run")
        return 2
    with tempfile.TemporaryDirectory(prefix="schedq-races-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        began_s = monotonic_s()
        seen = raced(folder, options.rounds, uids=uids, launch=UNCHECKED if options.fault else "", within_s=86400.0)
    took_s = monotonic_s() - began_s
    print(
        f"{len(seen.let_go)} workers let go of {len(seen.claims)} parked in {took_s:.0f} s, {seen.looks} looks at the"
        f" process table: at most {seen.most_gib:g} GiB at once of {CAPACITY_GIB - RESERVE_GIB:g}"
    )
    print(f"over-admissions: {len(set(seen.over))} (target {'some: the fault is planted' if options.fault else 0})")
    for text in sorted(set(seen.over))[:5]:
        print(f"  {text}")
    return int(bool(seen.over) is not options.fault)


if __name__ == "__main__":
    sys.exit(main())
