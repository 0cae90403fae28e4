"""100,000 random machines against an oracle that knows their future: how often is admitted what will not fit?

    python tests/benchmarks/oracle.py [--states 100000] [--from 0]

Target: 0 over-admissions among the states whose truth can be seen, 0 wrong "never", and no job that runs alone beside
another worker of the queue. What is left out by definition, and why what would have fitted is refused, stands in
`tests/oracle.py`. Prints counts, by ruling and by class.

Seeds 0 to 99,999 came to 42,475 starts (2,102 of jobs that run alone), 38,405 workers let go, 6,530 raises of warm
workers, 7,668 sent once all could see them and 5,015 taken back, and no over-admission. Of 288,467 single questions
82,647 were admitted; of those refused would have fitted, by the truth: 14 % of `pool_full`, 44 % of `no_room_now`,
43 % of `unknown_holding`, 44 % of `unreadable`, none of `too_big`. Of raises: 9 %, 16 %, 23 % and 35 % of the same
four, 31 % of `reserved`; of those taken back 11 % of `pool_full`, 27 % of `no_room_now`, 24 % of `unknown_holding`,
32 % of `unreadable`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from oracle import Tally, judge

from scheduler.clock import monotonic_s


def main() -> int:
    """Print what came of them; 1 if the target was missed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--states", type=int, default=100_000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    options = parser.parse_args()
    tally, began_s = Tally(), monotonic_s()
    for seed in range(options.first, options.first + options.states):
        judge(seed, tally)
    print(
        f"{tally.worlds} states in {monotonic_s() - began_s:.0f} s: {tally.starts} starts decided ({tally.lone} of jobs"
        f" that run alone), {tally.gone} workers let go; {tally.raised} raises decided, {tally.sent} sent,"
        f" {tally.lowered} taken back; over-admissions: {len(tally.over)} (target 0)"
    )
    for text in tally.over[:10]:
        print(f"  {text}")
    unseen = ", ".join(f"{what} {count}" for what, count in tally.over_unseen.most_common()) or "none"
    print(f"over-admissions by a truth that nobody can see, left out by definition: {unseen}")
    print(
        f"single questions: {tally.asked}, admitted {tally.admitted}; wrong nevers: {len(tally.never_wrong)} (target 0)"
    )
    for text in tally.never_wrong[:10]:
        print(f"  {text}")
    for ruling, count in tally.refused.most_common():
        wrong = tally.refused_wrongly[ruling]
        print(f"  {ruling:16} {count:7}, of which would have fitted {wrong:6} ({wrong / count:.0%})")
    print("raises that were refused, or taken back once all could see them:")
    for ruling, count in tally.not_raised.most_common():
        wrong = tally.not_raised_wrongly[ruling]
        print(f"  {ruling:22} {count:7}, of which would have fitted {wrong:6} ({wrong / count:.0%})")
    print(f"jobs that run alone beside another worker of this queue: {len(tally.beside)} (target 0)")
    for text in tally.beside[:10]:
        print(f"  {text}")
    return int(bool(tally.over or tally.never_wrong or tally.beside))


if __name__ == "__main__":
    sys.exit(main())
