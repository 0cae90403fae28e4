"""What a manifest may say, what is wrong with one, and where each of its values comes from."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from manifests_made import BASE, PARAMS, SCHEMA, Manifests

from scheduler import manifest
from scheduler.errors import UnknownProvider
from scheduler.inputs.cache import Seen


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    return Manifests(tmp_path, monkeypatch)


def compiled(made: Manifests) -> tuple[dict[str, Any], dict[str, str]]:
    return manifest.compiled(str(made.home / "cache"), Seen())


def spec(made: Manifests, slug: str = "fold", variant: str = "") -> dict[str, Any]:
    entries, broken = compiled(made)
    assert not broken
    found: dict[str, Any] = entries[slug]["variants"][variant]
    return found


def fault(made: Manifests, slug: str = "fold") -> str:
    entries, broken = compiled(made)
    assert slug not in entries
    return broken[slug]


def test_a_manifest_becomes_a_spec_with_every_default(made: Manifests) -> None:
    folder = made.add()
    found = spec(made)
    assert found["vram_gib"] == 28.0
    assert found["ram_gib"] == 6.0
    assert found["python"] == str(Path("~/envs/x/bin/python").expanduser())
    assert found["script"] == str(folder / "worker.py")
    assert (found["start_timeout_s"], found["request_timeout_s"], found["idle_timeout_s"]) == (900.0, 3600.0, 600.0)
    assert (found["max_workers"], found["threads"], found["count"], found["later_for_s"]) == (None, 1, 1, 43200.0)
    assert found["retry"] == {
        "max_attempts": 2, "outcomes": ["crashed", "no_reply", "lost"], "backoff_s": 10.0, "on_lost": "requeue",
    }  # fmt: skip
    assert found["input"]["defaults"] == {"seed": 1}
    assert found["environment"] is None
    assert found["warnings"] == []
    assert json.loads(json.dumps(found)) == found


@pytest.mark.parametrize(
    ("was", "now", "says"),
    [
        (
            "vram_budget_gb = 28.0",
            'vram_budget_gb = "28"',
            'gpu.vram_budget_gb = "28": must be a number; write vram_budget_gb = 28.0',
        ),
        ("vram_budget_gb = 28.0", "vram_budget_gb = true", "gpu.vram_budget_gb = true: must be a number"),
        ("vram_budget_gb = 28.0", "vram_budget_gb = nan", "gpu.vram_budget_gb = NaN: must be a number"),
        ("vram_budget_gb = 28.0", "vram_budget_gb = -1", "gpu.vram_budget_gb = -1: must be at least 0"),
        ("vram_budget_gb = 28.0", "vram_budget_gb = 0", "a device is required; measure the budget"),
        (
            "vram_budget_gb = 28.0",
            "vram_budget = 28.0",
            "gpu.vram_budget = 28.0: unknown key; did you mean vram_budget_gb?",
        ),
        (
            'policy = "required"',
            'policy = "require"',
            'gpu.policy = "require": must be one of required, none; did you mean required?',
        ),
        ('policy = "required"', 'policy = "none"', "gpu.vram_budget_gb = 28: the policy is none"),
        ('mode = "resident"', 'mode = "residnet"', "must be one of resident, oneshot; did you mean resident?"),
        ('mode = "resident"', "", 'mode is missing; add mode = "resident"'),
        (
            'mode = "resident"',
            'mode = "resident"\nvram_budget_gb = 3.0',
            "stands in the wrong place; write it under [gpu]",
        ),
        ('script = "worker.py"', 'script = "workr.py"', "workr.py is not there"),
        (
            'params = "params.schema.json"',
            'params = { steps = { type = "integer" } }',
            'must be the path of a JSON schema file, like "params.schema.json"',
        ),
        (
            'params = "params.schema.json"',
            'params = \'{"type": "object"}\'',
            'must be the path of a JSON schema file, like "params.schema.json"',
        ),
        (
            'schema = "input.schema.json"',
            "schema = true",
            'input.schema = true: must be the path of a JSON schema file, like "input.schema.json"',
        ),
        (
            'schema = "input.schema.json"',
            "example = [1]",
            'input.example = [1]: must be the path of an input, like "example.json"',
        ),
        ('script = "worker.py"', "", "worker.script is missing: mode resident needs it"),
        ('script = "worker.py"', 'script = "worker.py"\ncommand = ["x"]', "a resident worker is a script"),
        ('script = "worker.py"', 'script = "worker.py"\nargs = "--fast"', 'worker.args = "--fast": must be a list'),
        (
            'script = "worker.py"',
            'script = "worker.py"\nenv = {N = 4}',
            'worker.env.N = 4: must be text; write N = "4"',
        ),
        (
            'script = "worker.py"',
            'script = "worker.py"\nmax_workers = 1.5',
            "worker.max_workers = 1.5: must be a whole number",
        ),
        (
            'script = "worker.py"',
            'script = "worker.py"\nstart_timeout_s = 0',
            "worker.start_timeout_s = 0: must be above 0",
        ),
        (
            'script = "worker.py"',
            'script = "worker.py"\nwrap = ["sudo", "/usr/bin/docker", "run", "x"]',
            "docker run starts the process under a daemon",
        ),
        ('script = "worker.py"', 'script = "worker.py"\noutputs = ["../*.cif"]', "leads out of the output folder"),
        ('script = "worker.py"', 'script = "worker.py"\n[retry]\noutcomes = ["crash"]', "did you mean crashed?"),
        ('python = "~/envs/x/bin/python"', "", "no interpreter for this worker"),
        ('".json", ', '"json", ', 'input.accept[0] = "json": is not of the right form; write a suffix with its dot'),
        ('schema = "input.schema.json"', 'schema = "other.json"', 'input.schema = "other.json"'),
        ('slug = "{slug}"', 'slug = "bold"', "the folder is called fold"),
        ('slug = "{slug}"', 'slug = "Fold"', "use lower-case letters"),
        ("[host]", "[host", "not TOML: Expected ']' at the end of a table declaration (at line 8, column 6)"),
        ('mode = "resident"', 'mode = "resident"\ngpu = 3', "not TOML"),
        ("[host]\nram_budget_gb = 6.0", "", ""),
    ],
    ids=range(33),
)
def test_every_fault_names_file_key_value_and_fix(made: Manifests, was: str, now: str, says: str) -> None:
    assert was in BASE
    folder = made.add(text=BASE.replace(was, now))
    if not says:
        assert "host.ram_budget_gb is missing" in spec(made)["warnings"][0]
        return
    told = fault(made)
    assert says in told
    assert told.startswith(str(folder / "provider.toml"))
    assert "pydantic" not in told
    assert "type=" not in told


def test_all_faults_of_a_manifest_are_told_at_once(made: Manifests) -> None:
    made.add(text=BASE.replace("28.0", '"x"').replace("6.0", '"y"'))
    assert len(fault(made).split("\n")) == 2


def test_unknown_keys_of_a_foreign_tree_are_warnings(made: Manifests) -> None:
    text = (
        BASE.replace('mode = "resident"', 'mode = "resident"\nupstream_commit = "abc"') + '[provenance]\nauthor = "x"\n'
    )
    made.add(text=text)
    assert spec(made)["warnings"] == ["unknown key upstream_commit: ignored", "unknown key provenance: ignored"]


def test_a_key_of_ours_in_the_wrong_table_is_a_fault(made: Manifests) -> None:
    made.add(text=BASE.replace("[host]", "start_timeout_s = 5\n[host]"))
    assert "gpu.start_timeout_s = 5: stands in the wrong place; write it under [worker]" in fault(made)


def test_no_budget_parses_and_is_undeclared_and_no_device_is_zero(made: Manifests) -> None:
    made.add(text=BASE.replace("vram_budget_gb = 28.0", ""))
    assert spec(made)["vram_gib"] is None
    made.add(text=BASE.replace("vram_budget_gb = 28.0", "").replace('"required"', '"none"'))
    assert spec(made)["vram_gib"] == 0.0


def test_a_oneshot_has_a_command_or_a_script(made: Manifests) -> None:
    base = BASE.replace('"resident"', '"oneshot"').replace('script = "worker.py"\n', "")
    made.add(text=base.replace("[input]", 'command = ["tool", "{input}", "{outt}"]\n[input]'))
    found = spec(made)
    assert found["command"] == ["tool", "{input}", "{outt}"]
    assert "{outt}" in found["warnings"][0]
    made.add(text=base)
    assert "mode oneshot needs it or worker.command" in fault(made)


def test_variants_are_merged_whole(made: Manifests) -> None:
    made.add(
        more='[variants.t33_650M]\ngpu = { vram_budget_gb = 3.0 }\n[variants.t33_650M.worker]\nargs = ["--t33"]\n'
        '[variants.big]\nhost = { ram_budget_gb = 60.0 }\n'
    )  # fmt: skip
    small, big = spec(made, variant="t33_650M"), spec(made, variant="big")
    assert (small["vram_gib"], small["ram_gib"], small["args"]) == (3.0, 6.0, ["--t33"])
    assert (big["vram_gib"], big["ram_gib"], big["args"]) == (28.0, 60.0, [])
    assert len({each["revision"] for each in (small, big, spec(made))}) == 3


def test_a_variant_with_a_fault_is_named(made: Manifests) -> None:
    made.add(more='[variants.small]\ngpu = { vram_budget_gb = "3" }\n')
    assert "[variants.small]: gpu.vram_budget_gb" in fault(made)
    made.add(more='[variants.small]\nmode = "oneshot"\n')
    assert "variants.small.mode: a variant cannot change this" in fault(made)


def test_the_site_overrides_numbers_paths_time_outs_and_environment(made: Manifests) -> None:
    made.add(more="[variants.small]\ngpu = { vram_budget_gb = 3.0 }\n")
    before = spec(made)["revision"]
    made.site(
        '[providers.fold]\nvram_budget_gb = 26.5\npython = "/opt/x/bin/python"\nmeasured = "2026-11-29 on GB10"\n'
        '[providers.fold.worker]\nstart_timeout_s = 30\n[providers."fold:small"]\nram_budget_gb = 2.0\n'
    )  # fmt: skip
    found, small = spec(made), spec(made, variant="small")
    assert (found["vram_gib"], found["python"], found["start_timeout_s"]) == (26.5, "/opt/x/bin/python", 30.0)
    assert (small["vram_gib"], small["ram_gib"], small["start_timeout_s"]) == (3.0, 2.0, 30.0)
    assert found["revision"] == before
    made.site('[providers.fold]\nenv = { MODEL = "other" }\n')
    assert spec(made)["env"] == {"MODEL": "other"}
    assert spec(made)["revision"] != before


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[providers.fold]\nvram_budget_gb = "9"', '[providers.fold]: gpu.vram_budget_gb = "9": must be a number'),
        ("[providers.fold]\nvram_budget = 9", "providers.fold.vram_budget = 9: a site cannot set this"),
        ("[providers.fold.gpu]\nvram_budgt_gb = 9", "did you mean vram_budget_gb?"),
        ('[providers.fold]\nmode = "oneshot"', "a site cannot set this"),
        ("[providers.fold.variants.tiny]\nthreads = 2", "its variants are: none"),
        ("[providers.fold]\nvariants = 3", "a site cannot set this"),
    ],
)
def test_a_wrong_value_of_the_site_names_the_configuration(made: Manifests, text: str, says: str) -> None:
    made.add()
    made.site(text)
    told = fault(made)
    assert says in told
    assert str(made.config) in told or "tiny" in told


def test_each_value_has_an_origin(made: Manifests) -> None:
    folder = made.add(more="[variants.small]\ngpu = { vram_budget_gb = 3.0 }\n")
    made.site('[providers.fold]\nthreads = 4\nmeasured = "on GB10"\n')
    found = manifest.origins("fold:small")
    assert found["gpu.vram_budget_gb"] == f"{folder}/provider.toml [variants.small]"
    assert found["host.ram_budget_gb"] == f"{folder}/provider.toml"
    assert found["cpu.threads"] == f"{made.config} [providers.fold] (on GB10)"
    assert found["worker.stop_grace_s"] == "default"
    rows = {row["key"]: row["value"] for row in manifest.describe("fold")["values"]}
    assert (rows["cpu.threads"], rows["gpu.vram_budget_gb"]) == (4, 28.0)


def test_the_note_of_a_measured_budget_is_not_that_of_what_stands_beside_it(made: Manifests) -> None:
    made.add()
    made.site('[providers.fold]\nthreads = 4\nvram_budget_gb = 26.5\nmeasured = "device 20 GiB"\n')
    found = manifest.origins("fold")
    assert found["gpu.vram_budget_gb"] == f"{made.config} [providers.fold] (device 20 GiB)"
    assert found["cpu.threads"] == f"{made.config} [providers.fold]"


def test_each_value_and_its_note_are_from_the_file_that_has_them(
    made: Manifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system = tmp_path / "etc.toml"
    monkeypatch.setattr("scheduler.config.SYSTEM_FILE", str(system))
    made.add(more="[variants.small]\n")
    system.write_text(
        '[providers.fold]\nvram_budget_gb = 20.0\ndate = "2026-01-01"\n[providers.fold.env]\nA = "1"\nB = "1"\n'
        '[providers.fold.variants.small]\nthreads = 2\n'
    )  # fmt: skip
    made.site('[providers.fold]\nram_budget_gb = 5.0\nenv = { B = "2" }\n[providers."fold:small"]\nmax_workers = 1\n')
    found = manifest.origins("fold:small")
    assert found["gpu.vram_budget_gb"] == f"{system} [providers.fold] (2026-01-01)"
    assert found["host.ram_budget_gb"] == f"{made.config} [providers.fold]"
    assert found["worker.env.A"] == f"{system} [providers.fold]"
    assert found["worker.env.B"] == f"{made.config} [providers.fold]"
    assert found["cpu.threads"] == f"{system} [providers.fold:small]"
    assert found["worker.max_workers"] == f"{made.config} [providers.fold:small]"
    made.site('[providers.fold]\nram_budget_gb = "much"\n')
    assert str(made.config) in fault(made) and str(system) not in fault(made)


def test_the_two_ways_to_write_a_variants_values_are_laid_over_each_other(made: Manifests) -> None:
    made.add(more="[variants.small]\n")
    made.site(
        '[providers.fold.variants.small]\nthreads = 3\nenv = { A = "1", B = "1" }\n'
        '[providers."fold:small".env]\nA = "2"\n'
    )
    found = spec(made, variant="small")
    assert (found["env"], found["threads"]) == ({"A": "2", "B": "1"}, 3)


DECIDES = {
    "script": lambda made: made.add() / "worker.py",
    "code beside it": lambda made: made.add() / "weights.py",
    "schema": lambda made: made.add(schema={**SCHEMA, "title": "t"}),
    "params": lambda made: made.add(params={**PARAMS, "title": "t"}),
    "args": lambda made: made.add(text=BASE.replace("[input]", 'args = ["-x"]\n[input]')),
    "secrets": lambda made: made.add(text=BASE.replace("[input]", 'pass = ["KEY"]\n[input]')),
    "requirements": lambda made: made.add(more='[env]\nrequirements = ["a==1"]\n'),
    "weights": lambda made: made.add(more=f'[[files]]\npath = "~/w"\nsha256 = "{"a" * 64}"\n'),
    "size": lambda made: made.add(more='size = { sum_len = "/sequences/*/aa" }\n'),
}
COSTS = ("start_timeout_s = 5", "idle_timeout_s = 0", "max_workers = 3", "[cpu]\nthreads = 4", "[retry]\nbackoff_s = 1")


@pytest.mark.parametrize("what", DECIDES)
def test_the_revision_changes_with_what_decides_the_answer(made: Manifests, what: str) -> None:
    made.add()
    before = spec(made)["revision"]
    changed = DECIDES[what](made)
    if changed.suffix == ".py":
        changed.write_text("import other\n")
    assert spec(made)["revision"] != before


@pytest.mark.parametrize("text", COSTS)
def test_the_revision_stays_with_what_it_only_costs(made: Manifests, text: str) -> None:
    made.add()
    before = spec(made)["revision"]
    made.add(text=BASE.replace("[input]", f"{text}\n[input]").replace("28.0", "20.0").replace("6.0", "5.0"))
    (made.root / "fold" / ".venv").mkdir()
    (made.root / "fold" / ".venv" / "x.py").write_text("1")
    (made.root / "fold" / "envs" / "lib").mkdir(parents=True)
    (made.root / "fold" / "envs" / "pyvenv.cfg").write_text("")
    (made.root / "fold" / "envs" / "lib" / "x.py").write_text("1")
    assert spec(made)["revision"] == before


def test_the_environment_is_named_by_what_is_installed(made: Manifests) -> None:
    made.add(more='[env]\npython = ">=3.10,<3.13"\nrequirements = ["a==1"]\ncheck = "import a"\n')
    first = spec(made)["environment"]
    made.add("other", more='[env]\npython = ">=3.10,<3.13"\nrequirements = ["a==1"]\ncheck = "import a"\n')
    assert spec(made, "other")["environment"] == first
    made.add(more='[env]\npython = ">=3.10,<3.13"\nrequirements = ["a==2"]\ncheck = "import a"\n')
    assert spec(made)["environment"]["hash"] != first["hash"]
    made.add(more='[env]\npython = "three"\n')
    assert 'env.python = "three": is not of the right form; write a range of versions' in fault(made)


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ({"properties": {"a": {"type": "strin"}}}, 'at /properties/a/type: type "strin" is none of string'),
        ({"properties": {"a": {"pattern": "("}}}, "at /properties/a/pattern"),
        ({"items": {"$ref": "#/definitions/none"}}, "at /items/$ref"),
        ({"items": {"$ref": "https://example.org/x.json"}}, "leads out of this file"),
        ({"required": "a"}, "at /required"),
        ({"anyOf": [{"minLength": -1}]}, "at /anyOf/0/minLength"),
        ({"properties": {"a/b": 3}}, "at /properties/a~1b"),
        ([], "a JSON schema is an object"),
    ],
)
def test_a_broken_schema_is_named_with_its_pointer(made: Manifests, schema: Any, says: str) -> None:
    folder = made.add(schema=schema)
    told = fault(made)
    assert str(folder / "input.schema.json") in told
    assert says in told


def test_a_schema_that_is_not_json_is_named_with_its_place(made: Manifests) -> None:
    folder = made.add()
    (folder / "input.schema.json").write_text('{"type": }')
    assert "input.schema.json: not JSON: line 1, column 10" in fault(made)


def test_later_folders_win_also_when_they_are_broken(
    made: Manifests, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    made.add()
    second = tmp_path / "second" / "fold"
    second.mkdir(parents=True)
    (second / "provider.toml").write_text("slug = 3")
    monkeypatch.setenv("SCHEDQ_MANIFESTS", f"{made.root}:{second.parent}")
    assert str(second) in fault(made)
    monkeypatch.setenv("SCHEDQ_MANIFESTS", f"{second.parent}:{made.root}")
    assert spec(made)["vram_gib"] == 28.0


def test_one_broken_manifest_leaves_the_others(made: Manifests) -> None:
    made.add()
    made.add("bad", text="mode = 1")
    (made.root / "no-manifest").mkdir()
    (made.root / ".old").mkdir()
    (made.root / ".old" / "provider.toml").write_text("slug = 1")
    (made.root / "README.md").write_text("x")
    entries, broken = compiled(made)
    assert (list(entries), list(broken)) == (["fold"], ["bad"])


def test_check_lists_findings_of_a_slug_or_a_folder(made: Manifests, tmp_path: Path) -> None:
    made.add(text=BASE.replace("ram_budget_gb = 6.0", "") + 'example = "example.json"\n')
    example = made.root / "fold" / "example.json"
    example.write_text('{"sequences": []}')
    levels = [(each["level"], each["text"]) for each in manifest.check("fold")]
    assert levels[0][0] == "error"
    assert "the example would be refused" in levels[0][1]
    assert "at /sequences" in levels[0][1]
    assert ("warning", f"{made.root}/fold/provider.toml: host.ram_budget_gb is missing: charged its learned host use, "
            "0 until measured") in levels  # fmt: skip
    example.write_text('{"sequences": [{"id": "A"}]}')
    assert [each["level"] for each in manifest.check(str(made.root / "fold"))] == ["warning"]
    with pytest.raises(UnknownProvider, match="did you mean fold"):
        manifest.check("folt")


def test_a_name_is_a_provider_of_the_search_path_and_a_folder_has_a_slash(
    made: Manifests, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made.add(more="[variants.small]\n")
    for name in ("fold", "mine"):
        shutil.copytree(made.root / "fold", tmp_path / "here" / name)
        text = (made.root / "fold" / "provider.toml").read_text().replace('slug = "fold"', f'slug = "{name}"')
        (tmp_path / "here" / name / "provider.toml").write_text(text)
    monkeypatch.chdir(tmp_path / "here")
    assert manifest.read("fold")["folder"] == str(made.root / "fold")
    assert manifest.read("./fold")["folder"] == str(tmp_path / "here" / "fold")
    assert manifest.describe("./fold:small")["variant"] == "small"
    with pytest.raises(UnknownProvider, match=r"the folder that you are in has one: \./mine"):
        manifest.read("mine")


def test_a_default_that_its_own_schema_refuses_is_found(made: Manifests) -> None:
    made.add(params={"properties": {"n": {"type": "integer", "default": "x"}}})
    assert "the defaults: /n: must be a whole number" in manifest.check("fold")[0]["text"]


def test_a_validation_case_names_its_input(made: Manifests) -> None:
    made.add(more='[[validation]]\nname = "smoke"\ninput = "validation/smoke.json"\n')
    assert 'validation[0].input = "validation/smoke.json"' in fault(made)
    (made.root / "fold" / "validation").mkdir()
    (made.root / "fold" / "validation" / "smoke.json").write_text("{}")
    assert spec(made)["example"] == str(made.root / "fold" / "validation" / "smoke.json")
    assert "its input would be refused" in manifest.check("fold")[0]["text"]


@pytest.mark.parametrize(
    ("script", "taken"),
    [("../../../etc/passwd", False), ("resident/../../x.py", False), ("resident/../worker.py", True), ("{abs}", True)],
)
def test_a_relative_script_lies_in_the_manifests_folder_and_an_absolute_one_where_it_says(
    made: Manifests, tmp_path: Path, script: str, taken: bool
) -> None:
    (tmp_path / "elsewhere.py").write_text("1")
    (tmp_path / "manifests" / "x.py").write_text("1")
    folder = made.add(text=BASE.replace("worker.py", script.replace("{abs}", str(tmp_path / "elsewhere.py"))))
    (folder / "resident").mkdir(exist_ok=True)
    if taken:
        assert spec(made)["script"]
    else:
        assert "leads out of the manifest's folder" in fault(made)


@pytest.mark.parametrize(
    "line",
    [
        "-e .", "--index-url https://x/simple", "--extra-index-url=https://x", "-r more.txt", "-f wheels",
        "/etc/passwd", "./wheel.whl", "../x", "wheels/a.whl", "a.whl", "a-1.0.tar.gz", "~/a", "file:///a",
        "a @ file:///b", "a @ ./b",
        "a==1\n-e .", "a==1\r--no-index", "a==1 \\", " ", "https://x/a.whl", "git+https://x/a",
        "a==1 --config-settings=x",
    ],
)  # fmt: skip
def test_a_requirement_that_is_no_package_by_name_is_refused(made: Manifests, line: str) -> None:
    made.add(more=f"[env]\nrequirements = [{json.dumps(line)}]\n")
    told = fault(made)
    assert f"env.requirements = {json.dumps(line)}"[:60] in told
    assert "not an index, not a path" in told
    assert len(told.split("\n")) == 1


@pytest.mark.parametrize(
    "line",
    [
        "a", "a==1.0", "a[x,y]>=1,<2", "a.b-c_d ~= 1.4", 'a==1; python_version < "3.12"', "a (>=1)",
        "a @ https://x/a-1-py3-none-any.whl", "a[x] @ git+https://x/a@v1", "a==1 --hash=sha256:" + "0" * 64, "# why",
        "a === 1.0", "a!=1.5",
    ],
)  # fmt: skip
def test_a_requirement_that_names_a_package_is_taken(made: Manifests, line: str) -> None:
    made.add(more=f"[env]\nrequirements = [{json.dumps(line)}]\n")
    assert spec(made)["environment"]["requirements"] == [line]


@pytest.mark.parametrize(
    ("line", "loose"),
    [
        ("a==1.0", False), ("a == 1.0", False), ("a (==1.0)", False), ("a===1.0", False), ("# a", False),
        ("a @ https://x/a-1-py3-none-any.whl", False), ('a==1; python_version < "3.12"', False),
        ("a==1 --hash=sha256:" + "0" * 64, False), ("a", True), ("a>=1", True), ("a==1.*", True), ("a!=1.5", True),
        ('a; python_version == "3.12"', True),
    ],
)  # fmt: skip
def test_a_requirement_that_pins_no_version_is_warned_of(made: Manifests, line: str, loose: bool) -> None:
    made.add(more=f"[env]\nrequirements = {json.dumps([line])}\n")
    assert any("pins no version" in each for each in spec(made)["warnings"]) is loose


def test_a_file_whose_path_begins_with_a_variable_is_no_path_of_the_manifests_folder(made: Manifests) -> None:
    made.add(more='[[files]]\npath = "$WEIGHTS/a.bin"\n[[files]]\npath = "b.bin"\n')
    paths = [each["path"] for each in spec(made)["files"]]
    assert paths[0] == "$WEIGHTS/a.bin" and paths[1].startswith("/") and paths[1].endswith("/b.bin")


def test_what_stands_below_no_deps_is_taken_in_its_place(made: Manifests) -> None:
    made.add(more='[env]\nrequirements = ["a==1", "--no-deps", "b==2"]\n')
    assert spec(made)["environment"]["requirements"] == ["a==1", "--no-deps", "b==2"]


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        (["a==1", "--no-deps"], "is the last line; put it above what is to be installed without"),
        (["--no-deps", "a==1", "--no-deps"], "is there twice; keep the first"),
    ],
)
def test_a_no_deps_that_says_nothing_is_refused(made: Manifests, lines: list[str], word: str) -> None:
    made.add(more=f"[env]\nrequirements = {json.dumps(lines)}\n")
    assert word in fault(made)


@pytest.mark.parametrize(
    "wrap",
    [
        ["sh", "-c", "docker run img"],
        ["/bin/bash", "-lc", "cd /x && exec sudo docker  --context a run img"],
        ["env", "A=1", "bash", "-e", "-c", "true;podman run x"],
        ["sh", "-c", "bash -c 'nerdctl run x'"],
        ["sh", "-c", "$(docker run x)"],
        ["sh", "-c", "docker run 'unclosed"],
    ],
)
def test_a_daemon_is_found_in_the_text_of_a_shell(made: Manifests, wrap: list[str]) -> None:
    made.add(text=BASE.replace("[input]", f"wrap = {json.dumps(wrap)}\n[input]"))
    told = fault(made)
    assert "run starts the process under a daemon" in told
    assert "worker.wrap" in told


def test_a_shell_that_cannot_be_looked_into_is_a_warning(made: Manifests) -> None:
    made.add(text=BASE.replace("[input]", 'wrap = ["sh", "-c", "exec \\"$@\\"", "sh"]\n[input]'))
    assert "worker.wrap runs a shell (sh)" in spec(made)["warnings"][0]
    made.add(text=BASE.replace("[input]", 'wrap = ["apptainer", "exec", "docker://x"]\n[input]'))
    assert spec(made)["warnings"] == []
