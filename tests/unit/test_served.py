"""What a host serves while its manifests are edited: what was good stays for what runs, and jobs wait for the fault."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from manifests_made import BASE, Manifests

from scheduler.catalog import Catalog
from scheduler.config import Paths
from scheduler.errors import UsageError
from scheduler.host import served
from scheduler.host.served import Served

KEY = ("fold", "")


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifests:
    monkeypatch.setattr(served, "EVERY_S", 0.0)
    made = Manifests(tmp_path, monkeypatch)
    made.add(
        text=BASE.replace("[input]", "request_timeout_s = 7200\n[input]").replace("~/envs/x/bin/python", "python3")
    )
    made.add("other", text=BASE.replace("~/envs/x/bin/python", "python3"))
    return made


@pytest.mark.parametrize(
    "text", ["", 'slug = "fold"\nmo', "x = " + "9" * 5000, None], ids=["empty", "half", "odd", "gone"]
)
def test_a_manifest_that_is_being_edited_leaves_what_was_known_and_is_the_reason_of_waiting_jobs(
    made: Manifests, text: str | None
) -> None:
    host = Served(Paths())
    before = host.providers()[KEY]
    path = made.root / "fold" / "provider.toml"
    whole = path.read_text()
    path.unlink()
    if text is not None:
        path.write_text(text)
    now = host.providers()
    assert (now[KEY].request_timeout_s, now[KEY].revision, now[KEY].installed) == (7200.0, before.revision, False)
    assert str(path) in now[KEY].not_installed_text
    assert host.spec(*KEY)
    assert now["other", ""].not_installed_text == before.not_installed_text.replace("fold", "other")
    path.write_text(whole)
    assert host.providers()[KEY] == before


def test_a_variant_that_is_taken_out_is_kept_for_what_still_runs_of_it(made: Manifests) -> None:
    made.add(more="[variants.small]\ngpu = { vram_budget_gb = 3.0 }\n")
    host = Served(Paths())
    assert host.providers()["fold", "small"].vram_gib == 3.0
    made.add()
    now = host.providers()["fold", "small"]
    assert (now.vram_gib, now.installed) == (3.0, False)
    assert "fold:small is in no manifest any more" in now.not_installed_text


def test_a_configuration_that_is_being_edited_changes_nothing(made: Manifests) -> None:
    host = Served(Paths())
    before = host.providers()
    made.site("[providers.fold\n")
    assert host.providers() == before
    made.site("[providers.fold]\nthreads = 3\n")
    assert host.providers()[KEY].threads == 3


def test_a_configuration_that_breaks_is_said_once_for_each_fault(
    made: Manifests, caplog: pytest.LogCaptureFixture
) -> None:
    host = Served(Paths())
    host.providers()
    with caplog.at_level(logging.ERROR, "schedq"):
        for fault in ("[providers.fold\n", "overtake = \n"):
            made.site(fault)
            assert [len(host.providers()) for _ in range(3)] == [2, 2, 2]
    assert len(caplog.records) == 2


def test_a_configuration_that_is_broken_from_the_start_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: Paths) -> Catalog:
        raise UsageError("config.toml: line 3")

    monkeypatch.setattr(served.catalog, "load", broken)
    with pytest.raises(UsageError):
        Served(Paths(str(tmp_path))).providers()
