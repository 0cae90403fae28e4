"""Touches memory so that the kernel gives the file cache back, and lets go of it again: what is free then is free.

Run as `PYTHON -I -S touching.py --schedq-keeper WORDS... FOLDER`: its size stands in its argv as a keeper's claim does,
so that everybody on the machine counts it. It goes in steps, and stops where the machine would be hurt: less available
than the reserve and a step, the first page that is swapped out, everybody waiting for memory. It is the first that the
kernel kills, and ends with the process that started it or when its input ends. Says one line of JSON at its end.
Standard library only.
"""

import json
import mmap
import os
import select
import sys

STEP = 256 << 20
GIB = 1 << 30
STALLED_PERCENT = 10.0
SIGKILL = 9


def figures(path: str) -> "dict[str, int]":
    """The first number of each line, by its first word."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            words = [line.replace(":", " ").split() for line in file]
    except OSError:
        return {}
    return {each[0]: int(each[1]) for each in words if len(each) > 1 and each[1].isdigit()}


def stalled(proc: str) -> float:
    """Percent of the last 10 s in which everybody waited for memory; 0 where the kernel keeps no account."""
    try:
        with open(f"{proc}/pressure/memory", encoding="utf-8", errors="replace") as file:
            full = [line.split() for line in file if line.startswith("full")]
        return float(full[0][1].partition("=")[2])
    except (OSError, ValueError, IndexError):
        return 0.0


def unfit(proc: str, reserve: float, swapped: int) -> str:
    """Why not another step; empty if one may be taken."""
    available = figures(f"{proc}/meminfo").get("MemAvailable", 0) * 1024
    if available < reserve + STEP:
        return f"{available / GIB:.2f} GiB were available, and the reserve and a step are {(reserve + STEP) / GIB:.2f}"
    if figures(f"{proc}/vmstat").get("pswpout", 0) > swapped:
        return "memory was swapped out"
    full = stalled(proc)
    if full > STALLED_PERCENT:
        return f"everybody waited for memory {full:g} % of the last 10 s"
    return ""


def main(argv: "list[str]") -> None:
    """Touch what the claim says, step by step."""
    words = dict(word.partition("=")[::2] for word in argv[2:-1])
    proc, parent = words.get("proc", "/proc"), int(words["parent"])
    from scheduler.host.workers.lean import die_with

    die_with(parent, SIGKILL)
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:
        pass
    wanted, reserve = float(words["touch"]) * GIB, float(words["reserve"]) * GIB
    swapped, touched, why, held = figures(f"{proc}/vmstat").get("pswpout", 0), 0, "", []
    while touched < wanted:
        why = unfit(proc, reserve, swapped)
        if why or select.select([0], [], [], 0)[0]:
            break
        held.append(mmap.mmap(-1, STEP, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))
        touched += STEP
    while held:
        held.pop().close()
    os.write(1, json.dumps({"touched_gib": touched / GIB, "why": why}).encode() + b"\n")


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    main(sys.argv)
