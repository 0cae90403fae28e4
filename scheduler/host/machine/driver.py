"""The child process that asks a driver, run as `PYTHON -I -S driver.py nvidia PARENT FOLDER`.

A line on its input is a question, a line of JSON on its output the answer, with the question's number. It leaves at
the end of its input, and is killed when PARENT ends. FOLDER is where NVIDIA's Python binding is installed, or empty.
Light on purpose: standard library, that binding, and the modules beside it.
"""

import json
import os
import sys

SIGKILL = 9


def main(argv: list[str]) -> None:
    """Answer until nobody asks any more."""
    from scheduler.host.machine import nvml, smi
    from scheduler.host.workers.lean import brief, die_with

    die_with(int(argv[2]), SIGKILL)
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # a library that prints must not answer for us
    if argv[3]:
        sys.path.append(argv[3])
    library, program = None, smi.Smi()
    for line in sys.stdin.buffer:
        question = json.loads(line)
        try:
            library = library or nvml.library()
            answer = library.rows()
        except nvml.Absent as absent:
            library = None
            answer = program.rows(str(absent), question["within_s"])
        except Exception as error:  # said, and asked again: what is broken may be mended
            answer = nvml.told("NVML", [], f"NVIDIA devices cannot be read: {brief(error).decode()}")
        data = json.dumps({**answer, "n": question["n"]}).encode() + b"\n"
        while data:
            data = data[os.write(answers, data) :]


if __name__ == "__main__":
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path.append(os.path.dirname(os.path.dirname(os.path.dirname(here))))
    main(sys.argv)
