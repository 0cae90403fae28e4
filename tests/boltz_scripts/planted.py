"""A worker in whose Boltz a fault is planted: `python planted.py FAULT WORKER ARGUMENTS`, where boltz is."""

import runpy
import socket
import sys

import as_on_a_device  # noqa: F401
import torch
from boltz.data.feature.featurizerv2 import Boltz2Featurizer
from boltz.data.write.writer import BoltzWriter
from boltz.model.models.boltz2 import Boltz2


def starved(*_, **how):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.25 GiB. GPU 0 has a total capacity of 24 GiB")


def starved_driver(*_, **how):
    raise RuntimeError("CUDA error: out of memory")


def lost(*_, **how):
    raise RuntimeError("CUDA error: an illegal memory access was encountered")


def recorded(*_):
    return {"exception": True}


def unwritten(*_):
    return None


def unfeatured(*_, **how):
    raise ValueError("planted: no features")


def not_numbers(self, *how):
    found = step(self, *how)
    found["coords"] = found["coords"] * float("nan")
    return found


def alone(self, address):
    if self.family != socket.AF_UNIX:
        raise SystemExit(f"the network was asked: {address}")
    return connect(self, address)


class Alone(socket.socket):
    connect = alone


step, connect = Boltz2.predict_step, socket.socket.connect
fault = sys.argv[1]
if fault in ("starved", "starved_driver", "lost"):
    Boltz2.forward = {"starved": starved, "starved_driver": starved_driver, "lost": lost}[fault]
elif fault in ("recorded", "not_numbers"):
    Boltz2.predict_step = {"recorded": recorded, "not_numbers": not_numbers}[fault]
elif fault == "unwritten":
    BoltzWriter.write_on_batch_end = unwritten
elif fault == "unfeatured":
    Boltz2Featurizer.process = unfeatured
elif fault == "alone":
    socket.socket = Alone
else:
    sys.exit(f"no fault {fault}")
sys.argv = sys.argv[2:]
sys.path.insert(0, sys.argv[0].rpartition("/")[0])
runpy.run_path(sys.argv[0], run_name="__main__")
