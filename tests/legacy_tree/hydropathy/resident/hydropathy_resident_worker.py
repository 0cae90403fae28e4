"""A resident worker of the older protocol: a line of JSON in, a line of JSON out, no attempt, no progress.

`{"op": "ping"}` and `{"op": "shutdown"}` are its only words; any other line is a request itself:
`{"sequence": "MKV..."}` is answered with the mean hydropathy (Kyte and Doolittle). `{"exit": N}` ends the worker in
the middle of a request as older workers do: a last reply with `worker_exiting`, then exit N.
"""

import argparse
import json
import os
import socket
import sys

SCALE = {
    "A": 1.8, "R": -4.5, "N": -3.5, "D": -3.5, "C": 2.5, "Q": -3.5, "E": -3.5, "G": -0.4, "H": -3.2, "I": 4.5,
    "L": 3.8, "K": -3.9, "M": 1.9, "F": 2.8, "P": -1.6, "S": -0.8, "T": -0.7, "W": -0.9, "Y": -1.3, "V": 4.2,
}  # fmt: skip


def predict(request):
    if "exit" in request:
        sys.exit(request["exit"])
    sequence = request["sequence"]
    print(f"hydropathy of {len(sequence)} residues")
    return {"length": len(sequence), "gravy": sum(SCALE[residue] for residue in sequence) / len(sequence)}


def answer(request):
    op = request.get("op")
    if op == "ping":
        return {"ok": True, "pid": os.getpid()}, None
    if op == "shutdown":
        return {"ok": True}, 0
    try:
        return {"ok": True, **predict(request)}, None
    except SystemExit as leaving:
        said = {"ok": False, "error": "the worker is going down", "reason": "worker_exiting", "exit_code": leaving.code}
        return said, leaving.code
    except Exception as error:
        return {"ok": False, "error": f"{type(error).__name__}: {error}", "reason": "request_failed"}, None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    path = parser.parse_args().socket
    if os.path.exists(path):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen()
    while True:
        peer, _ = listening.accept()
        with peer, peer.makefile("rwb") as stream:
            line = stream.readline()
            if not line:
                continue
            reply, leave = answer(json.loads(line))
            stream.write(json.dumps(reply).encode() + b"\n")
            stream.flush()
        if leave is not None:
            os.unlink(path)
            sys.exit(leave)


main()
