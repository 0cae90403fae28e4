"""From the bytes of a Boltz YAML to what Boltz's network takes: its own parser, its own features, none of its silences.

`boltz predict` reports what goes wrong with one input by printing and going on with the next. Here there is no next
input, so what it would print instead of raising is raised.
"""

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import boltz.data.feature.featurizerv2
import boltz.data.module.inferencev2
import boltz.data.msa.mmseqs2
import boltz.data.parse.schema
import boltz.main
import boltz.model.models.boltz2
import boltz.model.modules.confidencev2
import requests
import yaml
from boltz.data.module.inferencev2 import PredictionDataset, collate
from boltz.data.parse.schema import parse_boltz_schema
from boltz.data.types import Manifest
from boltz_checks import notes_of_templates, refuse_misread, refuse_msas, refuse_options
from rdkit import Chem
from rdkit.Chem import AllChem, Descriptors
from schedq_worker import Later, Refused

TALKERS = (
    boltz.main, boltz.data.module.inferencev2, boltz.data.feature.featurizerv2, boltz.data.parse.schema,
    boltz.model.models.boltz2, boltz.model.modules.confidencev2,
)  # fmt: skip
"""Modules of Boltz that print what they swallow, or what a user should know of the answer."""

RDKIT_SEED = 42
"""RDKit's own generator goes on from job to job and cannot be set back; with a seed a conformer is always the same."""

SERVER_AGAIN_S = 300.0
NOT_YET = (408, 425, 429)
"""Answers of a server that blame the caller and still pass: too slow, too early, too often."""

notes = []
"""What Boltz said of the request in hand that a user should know: its lines that begin with WARNING."""

_asked_server = boltz.main.compute_msa
_answered = SimpleNamespace(code=None, error=None)
"""What the MSA server answered last, an HTTP code, or why it did not: Boltz has one sentence for all of it."""


def listen():
    """Take over what Boltz says: a swallowed exception is raised, an MSA that it would leave out is refused."""
    for module in TALKERS:
        module.print = _said
    boltz.main.compute_msa = _msa_of_server
    boltz.data.msa.mmseqs2.requests = SimpleNamespace(get=_noted(requests.get), post=_noted(requests.post))
    boltz.data.parse.schema.AllChem = _SeededChem()
    Chem.SetDefaultPickleProperties(Chem.PropertyPickleOptions.AllProps)


class _SeededChem:
    """Stands for RDKit's AllChem in Boltz's parser, which makes the conformer of a SMILES.

    AllChem has the module Descriptors, which Boltz asks it for, only where that was imported first.
    """

    Descriptors = Descriptors

    def __getattr__(self, name):
        made = getattr(AllChem, name)
        return _seeded(made) if name.startswith("ETKDG") else made


def _seeded(made):
    def options():
        found = made()
        found.randomSeed = RDKIT_SEED
        return found

    return options


def _said(*words, **how):
    """Stands for `print` in Boltz's modules."""
    error = sys.exc_info()[1]
    if error is not None:
        raise error
    text = " ".join(map(str, words))
    if text.startswith("Warning: MSA does not match"):
        raise Refused(
            "an MSA does not begin with the sequence of its chain, and Boltz would go on without it; give the MSA of "
            "this very sequence, or `msa: empty`"
        )
    if text.startswith("WARNING"):
        notes.append(text)
    print(*words, **how)


def _noted(ask):
    def asked(*given, **how):
        _answered.code = _answered.error = None
        try:
            found = ask(*given, **how)
        except Exception as error:
            _answered.error = error
            raise
        _answered.code = found.status_code
        return found

    return asked


def _msa_of_server(**how):
    _answered.code = _answered.error = None
    try:
        _asked_server(**how)
    except Exception as error:
        code, server = _answered.code, f"the MSA server {how['msa_server_url']}"
        if code is not None and 400 <= code < 500 and code not in NOT_YET:
            raise Refused(
                f"{server} answered {code}; correct msa_server_url, its name and password or key, or the sequences"
            ) from error
        rejected = code is not None and code < 400 and "valid protein sequence" in str(error)
        if rejected or isinstance(error, ValueError) or isinstance(_answered.error, ValueError):
            raise Refused(f"{server}: {_answered.error or error}") from error
        raise Later(f"{server}: {error}", SERVER_AGAIN_S) from error


def read(job, request, options, cache, folder):
    """Read and process a job's input into `folder`: Boltz's record of it. Refused with Boltz's words if it cannot."""
    notes.clear()
    source = job.input_path

    def parsed(path, ccd, mol_dir, boltz2=False):
        with path.open("r") as file:
            data = yaml.safe_load(file)
        _refuse_unread(data)
        refuse_options(data, options)
        _place_files(data, request, path.parent)
        if not options["use_msa_server"]:
            _refuse_without_msa(data, options)
        _refuse_without_sequence(data)
        refuse_misread(data, options["output_format"])
        refuse_msas(data)
        target = parse_boltz_schema(path.stem, data, ccd, mol_dir, boltz2)
        notes.extend(notes_of_templates(data, target.record))
        return target

    boltz.main.parse_yaml = parsed
    try:
        boltz.main.process_inputs(
            data=[source], out_dir=folder, ccd_path=cache / "ccd.pkl", mol_dir=cache / "mols", boltz2=True,
            use_msa_server=options["use_msa_server"], msa_server_url=options["msa_server_url"],
            msa_pairing_strategy=options["msa_pairing_strategy"], api_key_header=options["api_key_header"],
            msa_server_username=os.environ.get("BOLTZ_MSA_USERNAME"),
            msa_server_password=os.environ.get("BOLTZ_MSA_PASSWORD"),
            api_key_value=os.environ.get("MSA_API_KEY_VALUE"), max_msa_seqs=options["max_msa_seqs"],
            preprocessing_threads=1,
        )  # fmt: skip
    except (Refused, Later, MemoryError):
        raise
    except FileNotFoundError as error:
        raise Refused(f"{source.name}: {error}") from error
    except OSError:
        raise
    except Exception as error:
        raise Refused(f"{source.name} is no input that Boltz takes: {told(error)}") from error
    records = Manifest.load(folder / "processed" / "manifest.json").records
    if len(records) != 1:
        raise Refused(f"Boltz made {len(records)} records of {source.name}, and one was expected")
    return records[0]


def features(record, cache, folder, *, structures=None, method=None):
    """The features of a record, as the network takes them; `structures` = where its structure for affinity lies."""
    made = folder / "processed"
    dataset = PredictionDataset(
        manifest=Manifest([record]), target_dir=structures or made / "structures", msa_dir=made / "msa",
        mol_dir=cache / "mols", constraints_dir=made / "constraints", template_dir=made / "templates",
        extra_mols_dir=made / "mols", override_method=method, affinity=structures is not None,
    )  # fmt: skip
    return collate([dataset[0]])


def told(error):
    """An exception of Boltz's parser in words: those of its asserts and look-ups say too little by themselves."""
    text = " ".join(str(error).split())
    if isinstance(error, KeyError):
        return f"there is no {text} in it, or Boltz does not know it"
    return text if isinstance(error, ValueError) and text else f"{type(error).__name__} {text}".strip()


def _refuse_unread(data):
    """Refuse what YAML 1.1, which Boltz reads, takes for something else than text: NO, 012, 1_000."""
    if not isinstance(data, dict) or not isinstance(data.get("sequences"), list):
        raise Refused("it is no Boltz input: a mapping with the list `sequences` is needed")
    for number, item in enumerate(data["sequences"]):
        for kind, body in item.items() if isinstance(item, dict) else ():
            for key in ("id", "sequence", "smiles", "ccd") if isinstance(body, dict) else ():
                values = body[key] if isinstance(body.get(key), list) else [body.get(key, "")]
                for value in values:
                    if not isinstance(value, str):
                        raise Refused(
                            f"Boltz reads /sequences/{number}/{kind}/{key} as {value!r} and not as text; quote it"
                        )


def _refuse_without_msa(data, options):
    for number, item in enumerate(data["sequences"]):
        if "protein" in item and not item["protein"].get("msa"):
            raise Refused(
                f"/sequences/{number}/protein has no msa; name an .a3m or .csv file, or write `msa: empty` to go "
                "without one, or give --param use_msa_server=true, which sends the sequences to "
                f"{options['msa_server_url']}"
            )


def _refuse_without_sequence(data):
    """Boltz reads a template's sequence from its SEQRES records, and without them says `list index out of range`."""
    for item in data.get("templates") or ():
        path = item.get("pdb") if isinstance(item, dict) else None
        if isinstance(path, str) and path.endswith(".pdb"):
            with open(path, encoding="utf-8", errors="replace") as file:
                if not any(line.startswith("SEQRES") for line in file):
                    raise Refused(f"the template {os.path.basename(path)} has no SEQRES records, which Boltz needs")


def _place_files(data, request, folder):
    """Put the paths that the files were handed on under where the input names them; equal names stay equal paths.

    Without a queue in between the request has no paths, and a name is one from the input's folder.
    """
    found = {}
    for holder, key, text, steps in list(_named_files(data)):
        path = _at(request, steps)
        found.setdefault(text, path if isinstance(path, str) and os.path.isabs(path) else str(Path(folder, text)))
        holder[key] = found[text]


def _named_files(data):
    for number, item in enumerate(data["sequences"]):
        body = item.get("protein") if isinstance(item, dict) else None
        if isinstance(body, dict) and isinstance(body.get("msa"), str) and body["msa"] not in ("", "empty"):
            yield body, "msa", body["msa"], ("sequences", number, "protein", "msa")
    for number, item in enumerate(data.get("templates") or ()):
        for key in ("cif", "pdb"):
            if isinstance(item, dict) and isinstance(item.get(key), str):
                yield item, key, item[key], ("templates", number, key)


def _at(value, steps):
    try:
        for step in steps:
            value = value[step]
    except (KeyError, IndexError, TypeError):
        return None
    return value
