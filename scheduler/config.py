"""Settings and paths, each with its origin: file, environment, flag or default.

Order, later wins: built-in, /etc/schedq/config.toml, ~/.config/schedq/config.toml, environment, flags.
Imported by the fast paths: the standard library only; tomllib only when a file is there.
"""

from __future__ import annotations

import os

from scheduler.errors import UsageError

DEFAULTS: dict[str, object] = {
    "overtake": "900s",
    "strict": False,
    "reserve_unified_gib": 4.0,
    "reserve_host_gib": 2.0,
    "reserve_device_gib": 0.5,
    "unified": "auto",
    "inputs_copy_max_gib": 2.0,
    "input_max_mib": 64,
    "disk_reserve_gib": 5.0,
    "log_max_mib": 64,
    "auto_down": "15m",
    "allow_network_filesystem": False,
}

UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def duration_s(text: str, what: str = "duration") -> float:
    """A duration with its unit (`90s`, `2h`, `1h30m`) in seconds. UsageError without a unit."""
    rest, total, found = text.strip(), 0.0, False
    while rest:
        end = 0
        while end < len(rest) and (rest[end].isdigit() or rest[end] == "."):
            end += 1
        unit_end = end
        while unit_end < len(rest) and rest[unit_end].isalpha():
            unit_end += 1
        unit = rest[end:unit_end]
        if end == 0 or unit not in UNITS_S:
            found = False
            break
        try:
            total += float(rest[:end]) * UNITS_S[unit]
        except ValueError:
            found = False
            break
        rest, found = rest[unit_end:], True
    if not found:
        raise UsageError(f"{what} {text!r} is not a duration; write a number with its unit, like 90s, 15m or 2h")
    return total


def _user_dir(variable: str, fallback: str) -> str:
    base = os.environ.get(variable)
    if not base:
        base = os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "schedq")


def home() -> str:
    """The folder of all state: SCHEDQ_HOME, else the user's state folder. Absolute."""
    given = os.environ.get("SCHEDQ_HOME")
    return os.path.abspath(given) if given else _user_dir("XDG_STATE_HOME", ".local/state")


def envs() -> list[str]:
    """The folders of installed provider environments, in the order they are read: SCHEDQ_ENVS or the user's."""
    given = os.environ.get("SCHEDQ_ENVS")
    if given:
        return [os.path.abspath(p) for p in given.split(":") if p]
    return [os.path.join(_user_dir("XDG_DATA_HOME", ".local/share"), "envs")]


def config_files() -> list[str]:
    """The configuration files that are looked at, in order."""
    return ["/etc/schedq/config.toml", os.path.join(_user_dir("XDG_CONFIG_HOME", ".config"), "config.toml")]


def _bundled(name: str) -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(here, name)
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(here), name)


def manifest_folders() -> list[str]:
    """Where manifests are looked for, later wins: bundled, then each of $SCHEDQ_MANIFESTS."""
    given = os.environ.get("SCHEDQ_MANIFESTS", "")
    return [_bundled("manifests")] + [os.path.abspath(p) for p in given.split(":") if p]


def migrations_folder() -> str:
    """The Alembic scripts that ship with this version."""
    return _bundled("migrations")


class Settings:
    """All settings of one process, each value with where it came from."""

    def __init__(
        self,
        values: dict[str, object],
        origins: dict[str, str],
        providers: dict[str, object],
        site_origins: dict[str, str] | None = None,
    ) -> None:
        self.values = values
        self.origins = origins
        self.providers = providers
        self.site_origins = site_origins or {}
        """Which file a value of the site layer is from, by its dotted key: `boltz.gpu.vram_budget_gb`."""

    def number(self, key: str) -> float:
        """A numeric setting, in the unit that its name says."""
        value = self.values[key]
        try:
            return float(str(value))
        except ValueError:
            raise UsageError(f"setting {key} = {value!r} ({self.origins[key]}) is not a number") from None

    def seconds(self, key: str) -> float:
        """A duration setting, in seconds."""
        return duration_s(str(self.values[key]), f"setting {key}")

    def flag(self, key: str) -> bool:
        """A yes/no setting."""
        value = str(self.values[key]).lower()
        if value not in ("true", "false", "1", "0", "yes", "no"):
            raise UsageError(f"setting {key} = {value!r} ({self.origins[key]}) is not true or false")
        return value in ("true", "1", "yes")

    def text(self, key: str) -> str:
        """A setting as text."""
        return str(self.values[key])


def settings() -> Settings:
    """Read the files and the environment (`SCHEDQ_<KEY>`). UsageError names file and key of a wrong one."""
    values, origins = dict(DEFAULTS), dict.fromkeys(DEFAULTS, "default")
    providers: dict[str, object] = {}
    site_origins: dict[str, str] = {}
    for path in config_files():
        if not os.path.exists(path):
            continue
        import tomllib

        try:
            with open(path, "rb") as file:
                table = tomllib.load(file)
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise UsageError(f"{path}: {error}; correct the file or move it away") from None
        site = table.pop("providers", {})
        if not isinstance(site, dict):
            raise UsageError(f"{path}: [providers] must be a table of providers, like [providers.boltz]")
        for slug, over in site.items():
            if not isinstance(over, dict):
                raise UsageError(f"{path}: providers.{slug} = {over!r}: must be a table, [providers.{slug}]")
        _overlay(providers, site, path, "", site_origins)
        for key, value in table.items():
            if key not in DEFAULTS:
                import difflib

                near = difflib.get_close_matches(key, list(DEFAULTS), n=1)
                hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(sorted(DEFAULTS))}"
                raise UsageError(f"{path}: unknown setting {key}{hint}")
            values[key], origins[key] = value, path
    for key in DEFAULTS:
        name = "SCHEDQ_" + key.upper()
        if name in os.environ:
            values[key], origins[key] = os.environ[name], f"${name}"
    return Settings(values, origins, providers, site_origins)


def _overlay(under: dict[str, object], over: dict[str, object], path: str, at: str, origins: dict[str, str]) -> None:
    for key, value in over.items():
        below = under.get(key)
        if isinstance(value, dict):
            table = dict(below) if isinstance(below, dict) else {}
            _overlay(table, value, path, f"{at}{key}.", origins)
            under[key] = table
        else:
            under[key], origins[at + key] = value, path


class Paths:
    """Where each thing of one queue lies. Plain strings; nothing is created here."""

    def __init__(self, home_folder: str | None = None) -> None:
        self.home = os.path.abspath(home_folder) if home_folder else home()
        join = os.path.join
        self.database = join(self.home, "queue.db")
        self.lock_next = join(self.home, "lock", "next")
        self.lock_owner = join(self.home, "lock", "owner")
        self.lock_scheduler = join(self.home, "lock", "scheduler")
        self.content = join(self.home, "content")
        self.jobs = join(self.home, "jobs")
        self.results = join(self.home, "results")
        self.workers = join(self.home, "workers")
        self.backups = join(self.home, "backups")
        self.cache = join(self.home, "cache")
        self.secrets = join(self.home, "secrets.env")
        self.scheduler_log = join(self.home, "scheduler.log")
        self.run = self._run_folder()
        self.wake_socket = join(self.run, "wake")

    def _run_folder(self) -> str:
        inside = os.path.join(self.home, "run")
        if len(os.fsencode(os.path.join(inside, "0000000000.w"))) <= 100:
            return inside
        import hashlib

        mark = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return f"/tmp/schedq-{os.getuid()}-{mark}"

    def content_of(self, sha256: str) -> str:
        """Where a piece that is kept by its content lies."""
        return os.path.join(self.content, sha256[:2], sha256)

    def worker(self, worker_id: int) -> str:
        """The folder of one worker: the keeper's lock, spec, exit status and log."""
        return os.path.join(self.workers, str(worker_id))

    def job(self, job_id: int) -> str:
        """The folder of one job: `work`, and per attempt `<n>/out`, `<n>/in`, `<n>/log`, `<n>.json`."""
        return os.path.join(self.jobs, str(job_id))

    def attempt(self, job_id: int, attempt: int) -> str:
        """The folder of one attempt."""
        return os.path.join(self.jobs, str(job_id), str(attempt))
