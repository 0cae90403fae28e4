"""Manifests for tests, made in a folder of their own: right as they come, one thing overridden by each test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["sequences"],
    "additionalProperties": False,
    "properties": {
        "sequences": {"type": "array", "minItems": 1, "items": {"$ref": "#/definitions/chain"}},
        "seed": {"type": "integer"},
    },
    "definitions": {
        "chain": {
            "type": "object",
            "required": ["id"],
            "additionalProperties": False,
            "properties": {"id": {"type": "string", "pattern": "^[A-Z]+$"}, "aa": {"type": "string"}, "msa": {}},
        }
    },
}
PARAMS: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "properties": {
        "seed": {"type": "integer", "minimum": 0, "maximum": 9, "default": 1},
        "temperature": {"type": "number", "exclusiveMinimum": 0},
        "fast": {"type": "boolean"},
        "mode": {"enum": ["greedy", "beam"]},
        "chains": {"type": "array", "items": {"type": "string"}},
        "note": {"type": "string"},
        "limit": {"type": ["integer", "null"]},
    },
}
BASE = """
slug = "{slug}"
title = "A provider for tests"
mode = "resident"
[gpu]
policy = "required"
vram_budget_gb = 28.0
[host]
ram_budget_gb = 6.0
[worker]
python = "~/envs/x/bin/python"
script = "worker.py"
[input]
accept = [".json", ".yaml"]
schema = "input.schema.json"
params = "params.schema.json"
"""


class Manifests:
    """A search folder of manifests, and the home of a queue that reads it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root / "manifests"
        self.home = root / "home"
        self.config = root / "config" / "schedq" / "config.toml"
        self.root.mkdir()
        monkeypatch.setattr("scheduler.config._bundled", lambda name: str(root / "none" / name))
        monkeypatch.setenv("SCHEDQ_MANIFESTS", str(self.root))
        monkeypatch.setenv("SCHEDQ_HOME", str(self.home))
        monkeypatch.setenv("XDG_CONFIG_HOME", str(root / "config"))

    def add(self, slug: str = "fold", text: str = BASE, more: str = "", **files: Any) -> Path:
        """Write one provider's folder; `more` is added to the manifest."""
        folder = self.root / slug
        folder.mkdir(exist_ok=True)
        (folder / "provider.toml").write_text(text.replace("{slug}", slug) + more)
        (folder / "worker.py").write_text("import weights\n")
        (folder / "input.schema.json").write_text(json.dumps(files.get("schema", SCHEMA)))
        (folder / "params.schema.json").write_text(json.dumps(files.get("params", PARAMS)))
        return folder

    def site(self, text: str) -> None:
        """Write the configuration file."""
        self.config.parent.mkdir(parents=True, exist_ok=True)
        self.config.write_text(text)
