"""The parent of one worker: holds its lock, its output, its exit status; outlives the scheduler.

Run as `PYTHON -I -S keeper.py --schedq-keeper worker=12 slug=boltz queue=Q lease=unified:34 charge=unified:34.0
control=SOCKET DIR`: argv is the claim that everyone on the machine can read. Standard library only, with the few
light modules beside it that `keeping` names; all are read at the start, so that an upgrade under a living keeper
changes nothing for it. They are apart from this file because a script is compiled at every start and an imported
module is not: half of a keeper's memory, and a third of its time (E29).
"""

import os
import sys

if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    from scheduler.host.workers.keeping import main

    if "slug=exec" in sys.argv:
        from scheduler.host.workers.command import CommandKeeper

        main(sys.argv, CommandKeeper)
    if any(word.startswith("queue=try-") for word in sys.argv):
        from scheduler.host.workers.tried import TriedKeeper

        main(sys.argv, TriedKeeper)
    main(sys.argv)
