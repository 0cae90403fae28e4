"""Boltz for tests: its environment, a cache folder with tiny random weights, a manifest that needs no device.

Made once a machine, beside the other environments of tests (providers.ENVS): 2 GB, and some minutes the first time.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from pathlib import Path

from providers import ENVS, MANIFESTS, installed, spec_of

from scheduler.declared.revision import short

SCRIPTS = Path(__file__).resolve().parent / "boltz_scripts"
CODES = [
    "ALA", "ARG", "ASN", "ASP", "CYS", "GLN", "GLU", "GLY", "HIS", "ILE", "LEU", "LYS", "MET", "PHE", "PRO", "SER",
    "THR", "TRP", "TYR", "VAL", "UNK", "SEP", "ATP", "ZN", "A", "G", "C", "U", "DA", "DG", "DC", "DT",
]  # fmt: skip
CHEMIST = {
    "python": ">=3.11",
    "requirements": [
        "--no-deps", "biotite==1.6.0", "msgpack==1.2.4", "networkx==3.6.1", "numpy==2.4.6", "packaging==26.4",
        "rdkit==2026.9.1",
    ],
    "check": "import biotite.interface.rdkit, biotite.structure.info",
}  # fmt: skip
"""What writes molecules: biotite's wheel holds the whole dictionary of the PDB's components."""


def python(home: Path) -> str:
    """The interpreter that has boltz: the shipped manifest's environment's, or the one that SCHEDQ_TEST_BOLTZ names."""
    return os.environ.get("SCHEDQ_TEST_BOLTZ") or installed({**spec_of("boltz", home), "files": []})


def cache(home: Path) -> Path:
    """A folder as BOLTZ_CACHE has it, made by the scripts as they are; never written to afterwards."""
    texts = (
        b"".join((SCRIPTS / name).read_bytes() for name in ("molecules.py", "weights.py")) + " ".join(CODES).encode()
    )
    place = Path(ENVS) / f"boltz-cache-{hashlib.sha256(texts).hexdigest()[:16]}"
    if place.is_dir():
        return place
    model = python(home)
    os.makedirs(ENVS, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ENVS) as made:
        folder = Path(made) / "cache"
        folder.mkdir()
        chemist = installed({
            "slug": "molecules", "variant": "", "manifest": __file__, "folder": str(SCRIPTS), "python": None,
            "files": [], "environment": {**CHEMIST, "hash": short(list(CHEMIST.values()))},
        })  # fmt: skip
        subprocess.run([chemist, str(SCRIPTS / "molecules.py"), str(folder / "mols"), *CODES], check=True)
        subprocess.run([model, str(SCRIPTS / "weights.py"), str(folder)], check=True, env=quiet())
        (folder / "mols.tar").touch()
        if not place.exists():
            folder.rename(place)
    return place


def quiet() -> dict[str, str]:
    """The environment of a short program: one thread, and no way to a network."""
    away = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    return {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "OMP_NUM_THREADS": "1", **away}


def manifest(root: Path, *, python: str, cache: Path, more: str = "") -> Path:
    """The shipped provider in a folder of its own: policy none, Boltz's accelerator cpu, the tiny weights."""
    folder = root / "boltz"
    shutil.copytree(MANIFESTS / "boltz", folder)
    text = (folder / "provider.toml").read_text()
    text = re.sub(r'policy = "required"\nvram_budget_gb.*\n', 'policy = "none"\n', text)
    text = re.sub(r"ram_budget_gb = .*\n", "ram_budget_gb = 1.0\n", text)
    text = re.sub(r"(?s)\[env\]\n.*?\n\n", "", text, count=1)
    text = re.sub(r"(?m)^(bytes|sha256) = .*\n", "", text)
    text = text.replace("threads = 4", "threads = 1").replace("~/.boltz", str(cache))
    words = f'python = "{python}"\nargs = ["--accelerator", "cpu"]\n{more}'
    (folder / "provider.toml").write_text(text.replace("[worker]\n", f"[worker]\n{words}"))
    return folder


def command(python: str, cache: Path, source: Path, out: Path, *options: str, seed: int) -> Path:
    """What Boltz's own command makes of an input: the folder of its predictions."""
    call = [
        python, str(SCRIPTS / "command.py"), str(seed), "predict", str(source), "--out_dir", str(out),
        "--cache", str(cache), "--accelerator", "cpu", "--num_workers", "0", "--preprocessing-threads", "1",
        "--seed", str(seed), *options,
    ]  # fmt: skip
    done = subprocess.run(call, capture_output=True, text=True, cwd=source.parent, env=quiet(), timeout=600)
    found = out / f"boltz_results_{source.stem}" / "predictions" / source.stem
    assert done.returncode == 0 and found.is_dir(), done.stdout + done.stderr
    return found


def arrays(path: Path) -> dict[str, bytes]:
    """The raw bytes of each array of an .npz file, which carries times and so is never the same file."""
    with zipfile.ZipFile(path) as held:
        return {name: held.read(name) for name in held.namelist()}
