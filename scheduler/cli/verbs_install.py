"""The verbs for what providers need before they start, environments and files: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import JSON, PANELS, SLUG, Argument, Option, Verb

MORE = PANELS[1]

INSTALL: tuple[Verb, ...] = (
    Verb(
        "install",
        "installing:install",
        "Build the environments that providers declare, or take ones that are there.",
        told="Built beside everything else, shared by all providers that declare the same, and whole or not there. "
        "pip's settings apply (PIP_INDEX_URL, PIP_FIND_LINKS, PIP_CONSTRAINT, PIP_CACHE_DIR, pip.conf), but for those "
        "that would install elsewhere or something else. Files are not fetched by it: schedq files does that.",
        arguments=(Argument("SLUG", "providers", many=True, key="slugs"),),
        options=(
            Option("--python", "P", "the Python to build with; else the first that is in the declared range"),
            Option("--offline", "", "ask no network: only wheels of pip's cache and of --find-links"),
            Option("--find-links", "PATH", "a folder of wheels to install from, beside what else applies", many=True),
            Option(
                "--from-env",
                "PATH",
                "take the conda environment or venv at PATH as it is: nothing is built, and nothing in it is changed",
            ),
        ),
        examples=(
            "schedq install capiti propka",
            "schedq install boltz --offline --find-links wheels",
            "schedq install boltz --from-env ~/miniforge3/envs/boltz",
        ),
        panel=MORE,
    ),
    Verb(
        "uninstall",
        "installing:uninstall",
        "Remove the environments of providers, and say what that frees.",
        told="Refused while a worker runs in one (exit 75), and where a provider that is not named shares it (exit 3). "
        "An environment that was taken by --from-env is no longer used, and stays as it is; files stay.",
        arguments=(Argument("SLUG", "providers", least=0, many=True, key="slugs"),),
        options=(
            Option("--all-unused", "", "every environment that no provider declares, and what was left unfinished"),
            Option("--dry-run", "", "say what it would remove, and remove nothing"),
            JSON,
        ),
        examples=("schedq uninstall capiti", "schedq uninstall --all-unused --dry-run"),
        panel=MORE,
    ),
    Verb(
        "files",
        "files:files",
        "The files that a provider needs, weights mostly: what is there, fetched, verified.",
        told="Nothing is downloaded unless --fetch asks for it. A fetch that was interrupted goes on where it stopped; "
        "a file is in its place only when it is whole and what is declared. Proxies of the environment apply.",
        arguments=(SLUG,),
        options=(
            Option("--list", "", "say where each lies and whether it is there; so without any of these"),
            Option("--fetch", "", "download those that are not there"),
            Option("--verify", "", "read them whole, and compare their sha256 (exit 1 if one is not what is declared)"),
            Option("--overwrite", "", "with --fetch: replace files that are not what is declared"),
            JSON,
        ),
        examples=("schedq files boltz", "schedq files boltz --fetch", "schedq files boltz --verify --json"),
        panel=MORE,
    ),
)
