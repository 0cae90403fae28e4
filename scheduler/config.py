"""Settings and paths, each with its origin: file, environment, flag or default.

Order, later wins: built-in, /etc/schedq/config.toml, ~/.config/schedq/config.toml, environment, flags.
Imported by the fast paths: the standard library only; tomllib only when a file is there.
"""

from __future__ import annotations

import os

from scheduler.errors import UsageError
from scheduler.settable import ABOUT as ABOUT
from scheduler.settable import DEFAULTS as DEFAULTS
from scheduler.settable import EXAMPLES, gib_of, nearest, needed, open_part, shown, words_of
from scheduler.settable import LONGEST_S as LONGEST_S
from scheduler.settable import SHORTEST_S as SHORTEST_S
from scheduler.settable import duration_s as duration_s

OURS = ("home", "envs", "manifests", "debug", "worker", "charge_device_gib", "device_total_gib")
"""What SCHEDQ_ variables are about that are no settings: three places, and what processes are told by schedq."""

NEAR = 0.75
"""From what likeness on (difflib's ratio) a SCHEDQ_ variable is a slip of one of ours, and not another program's."""

SYSTEM_FILE = "/etc/schedq/config.toml"


def absolute(path: str, what: str) -> str:
    """A path made absolute. UsageError, naming `what` it is of, if it is relative and the current folder is gone."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        raise UsageError(
            f"{what} {path!r} is relative, and the folder that you are in is not there any more; go to another (cd), or"
            " write the path from / on"
        ) from None


def _user_dir(variable: str, fallback: str) -> str:
    base = os.environ.get(variable)
    if not base:
        base = os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "schedq")


def home() -> str:
    """The folder of all state: SCHEDQ_HOME, else the user's state folder. Absolute."""
    given = os.environ.get("SCHEDQ_HOME")
    return absolute(given, "SCHEDQ_HOME") if given else _user_dir("XDG_STATE_HOME", ".local/state")


def envs() -> list[str]:
    """The folders of installed provider environments, in the order they are read: SCHEDQ_ENVS or the user's."""
    given = os.environ.get("SCHEDQ_ENVS")
    if given:
        return [absolute(p, "SCHEDQ_ENVS") for p in given.split(":") if p]
    return [os.path.join(_user_dir("XDG_DATA_HOME", ".local/share"), "envs")]


def config_files() -> list[str]:
    """The configuration files that are looked at, in order."""
    return [SYSTEM_FILE, os.path.join(_user_dir("XDG_CONFIG_HOME", ".config"), "config.toml")]


def _bundled(name: str) -> str:
    here = os.path.dirname(os.path.abspath(__file__))
    inside = os.path.join(here, name)
    return inside if os.path.isdir(inside) else os.path.join(os.path.dirname(here), name)


def manifest_folders() -> list[str]:
    """Where manifests are looked for, later wins: bundled, then each of $SCHEDQ_MANIFESTS."""
    given = os.environ.get("SCHEDQ_MANIFESTS", "")
    return [_bundled("manifests")] + [absolute(p, "SCHEDQ_MANIFESTS") for p in given.split(":") if p]


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
        unknown: list[str] | None = None,
    ) -> None:
        self.values = values
        self.origins = origins
        self.providers = providers
        self.site_origins = site_origins or {}
        """Which file a value of the site layer is from, by its dotted key: `boltz.gpu.vram_budget_gb`."""
        self.unknown = unknown or []
        """Keys that are no setting, a sentence each."""

    def number(self, key: str) -> float:
        """A numeric setting, in the unit that its name says. UsageError if it is none, or out of its limits."""
        return float(str(self._fit(key)))

    def seconds(self, key: str) -> float:
        """A duration setting, in seconds. UsageError if it is none."""
        return duration_s(str(self._fit(key)))

    def flag(self, key: str) -> bool:
        """A yes/no setting; auto is no. UsageError if it is none of them."""
        return str(self._fit(key)).lower() in ("true", "1", "yes")

    def words(self, key: str) -> tuple[str, ...]:
        """A setting that is a list. UsageError if it is none."""
        return words_of(self._fit(key))

    def gib_by_name(self, key: str) -> dict[str, float]:
        """A setting that is a table of GiB by name. UsageError if it is none, or one of them is out of its limits."""
        return gib_of(self._fit(key))

    def _fit(self, key: str) -> object:
        wrong = self.fault(key)
        if wrong:
            raise UsageError(wrong)
        return self.values[key]

    def fault(self, key: str) -> str:
        """What is wrong with a value: where it stands, what it must be, what to write instead; empty if nothing."""
        value, default, origin = self.values[key], DEFAULTS[key], self.origins[key]
        must_be = needed(key, value, default)
        if not must_be:
            return ""
        value = open_part(key, value)
        in_file, in_environment = EXAMPLES.get(key) or (shown(default), default)
        if origin.startswith("$"):
            told = in_environment if isinstance(in_environment, str) else shown(in_environment)
            return f"{origin} = {shown(value)}: must be {must_be}; set it to {told}, or unset it"
        return f"{origin}: {key} = {shown(value)}: must be {must_be}; write {key} = {in_file}, or remove it"

    def faults(self) -> list[str]:
        """What is wrong with the whole configuration, a sentence each; empty if all of it can be used."""
        return [*self.unknown, *(wrong for wrong in map(self.fault, DEFAULTS) if wrong)]

    def text(self, key: str) -> str:
        """A setting as text."""
        return str(self.values[key])


def settings() -> Settings:
    """All settings, every value fit to be used. UsageError names key, value and origin of each that is not."""
    found = declared()
    wrong = found.faults()
    if wrong:
        raise UsageError("\n".join(wrong))
    return found


def declared() -> Settings:
    """What files and environment (`SCHEDQ_<KEY>`) say, fit or not. UsageError names a file or key that is none."""
    values, origins = dict(DEFAULTS), dict.fromkeys(DEFAULTS, "default")
    providers: dict[str, object] = {}
    site_origins: dict[str, str] = {}
    unknown: list[str] = []
    for path in config_files():
        table = _table(path)
        site = table.pop("providers", {})
        if not isinstance(site, dict):
            raise UsageError(f"{path}: [providers] must be a table of providers, like [providers.boltz]")
        for slug, over in site.items():
            if not isinstance(over, dict):
                raise UsageError(f"{path}: providers.{slug} = {shown(over)}: must be a table, [providers.{slug}]")
        _overlay(providers, site, path, "", site_origins)
        for key, value in table.items():
            if key not in DEFAULTS:
                unknown.append(f"{path}: unknown setting {key}{nearest(key, list(DEFAULTS))}")
                continue
            values[key], origins[key] = value, path
    for key in DEFAULTS:
        name = "SCHEDQ_" + key.upper()
        if name in os.environ:
            values[key], origins[key] = os.environ[name], f"${name}"
    unknown += slips()
    return Settings(values, origins, providers, site_origins, unknown)


def slips() -> list[str]:
    """Variables of the environment that are near to one of ours and none of them, a sentence each."""
    told = []
    for name in sorted(os.environ):
        key = name.removeprefix("SCHEDQ_").lower()
        if key == name.lower() or key in DEFAULTS or key in OURS:
            continue
        import difflib

        near = difflib.get_close_matches(key, [*DEFAULTS, *OURS[:3]], n=1, cutoff=NEAR)
        if near:
            told.append(f"${name}: unknown setting; did you mean SCHEDQ_{near[0].upper()}? Set that, or unset {name}")
    return told


def _table(path: str) -> dict[str, object]:
    """What a configuration file holds; nothing if there is none. UsageError if it cannot be read."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError:
        pass
    from scheduler import tomlfile

    try:
        from scheduler import readable

        return tomlfile.parsed(readable.read(path, tomlfile.MOST_BYTES), path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None


def check(slugs: list[str] | None = None) -> list[str]:
    """Check the whole configuration as it is now: UsageError with every fault, else what is odd, a sentence each.

    Odd is, among `slugs`, a section of a provider that is not there.
    """
    found = settings()
    told = []
    for name in found.providers if slugs is not None else ():
        slug = name.partition(":")[0]
        if slug not in (slugs or ()):
            files = [file for key, file in found.site_origins.items() if key.startswith(f"{name}.")]
            what = f"{(files or ['the configuration'])[0]}: [providers.{name}] has no effect"
            told.append(f"{what}: no provider {slug}{nearest(slug, slugs or [])}")
    return told


def _overlay(under: dict[str, object], over: dict[str, object], path: str, at: str, origins: dict[str, str]) -> None:
    for key, value in over.items():
        below = under.get(key)
        if isinstance(value, dict):
            table = dict(below) if isinstance(below, dict) else {}
            _overlay(table, value, path, f"{at}{key}.", origins)
            under[key] = table
        else:
            under[key], origins[at + key] = value, path


def _refuse_no_folder(path: str) -> None:
    """UsageError if a queue's folder, or what it lies in, is there and is no folder."""
    at = path
    while not os.path.lexists(at) and os.path.dirname(at) != at:
        at = os.path.dirname(at)
    if os.path.exists(at) and not os.path.isdir(at):
        raise UsageError(f"{at} is no folder, so no queue can be at {path}; set SCHEDQ_HOME to a folder of yours")


class Paths:
    """Where each thing of one queue lies. Plain strings; nothing is created here. UsageError: it can be no folder."""

    def __init__(self, home_folder: str | None = None) -> None:
        self.home = absolute(home_folder, "home") if home_folder else home()
        _refuse_no_folder(self.home)
        join = os.path.join
        self.database = join(self.home, "queue.db")
        self.mark = join(self.home, "queue.id")
        self.asides = join(self.home, "asides.jsonl")
        self.lock_next = join(self.home, "lock", "next")
        self.lock_owner = join(self.home, "lock", "owner")
        self.lock_scheduler = join(self.home, "lock", "scheduler")
        self.content = join(self.home, "content")
        self.jobs = join(self.home, "jobs")
        self.results = join(self.home, "results")
        self.workers = join(self.home, "workers")
        self.backups = join(self.home, "backups")
        self.spare = join(self.home, "spare")
        self.cache = join(self.home, "cache")
        self.secrets = join(self.home, "secrets.env")
        self.scheduler_log = join(self.home, "scheduler.log")
        self.run = self._run_folder()
        self.wake_socket = join(self.run, "wake")

    def _run_folder(self) -> str:
        """Beside all else; where a socket's path is too long, in another place: one for all names of a queue."""
        real = os.path.realpath(self.home)
        for folder in (self.home, real) if _short(real) else ():
            if _short(folder):
                return os.path.join(folder, "run")
        import hashlib

        mark = hashlib.sha256(os.fsencode(real)).hexdigest()[:12]
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


def _short(home_folder: str) -> bool:
    """Whether the path of a worker's socket below it fits into an address (108 bytes with its end)."""
    return len(os.fsencode(os.path.join(home_folder, "run", "0000000000.w"))) <= 100
