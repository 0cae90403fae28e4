"""What pip is told beside the requirements: the caller's own settings of it, as far as an environment stays its own.

Indexes, folders of wheels, constraints, caches, proxies and certificates of PIP_* and pip.conf apply. What would
install elsewhere, something else, or nothing at all does not. Offline nothing is asked of a network.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from scheduler.errors import SchedqError, UsageError
from scheduler.host import cached_wheels

LEFT_OUT = frozenset({
    "abi", "break-system-packages", "dry-run", "editable", "group", "implementation", "isolated", "local-log", "log",
    "log-file", "no-dependencies", "no-deps", "platform", "prefix", "python", "python-version", "quiet", "report",
    "require-venv", "require-virtualenv", "requirement", "root", "source", "source-dir", "source-directory", "src",
    "target", "user", "verbose",
})  # fmt: skip
"""Settings of pip by which something else would be installed than is declared, elsewhere, or not seen by us."""

ONLINE = frozenset({"index-url", "extra-index-url", "no-index", "no-binary", "only-binary", "find-links", "proxy"})
"""Settings that say where packages come from: offline that is said by us alone."""

PLACE, PLACES = ("cache-dir", "cert", "client-cert", "config-file"), ("build-constraint", "constraint", "find-links")
"""Settings whose value is a path, and those of several; pip takes relative ones from the folder that it runs in."""

NOT_INHERITED = (
    "CONDA_PREFIX", "PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "PYTHONUSERBASE", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__",
)  # fmt: skip
NOWHERE = "http://127.0.0.1:9"
"""A proxy that is not there: whatever would go to a network in spite of all else fails at once."""

OF_ASKING = ("PIP_GLOBAL", "PIP_QUIET", "PIP_REQUIRE_VIRTUALENV", "PIP_SITE", "PIP_USER", "PIP_VERBOSE")
"""Options by which a configuration would change what `pip config list` tells of it."""

LACKING = """
import json, os, sys
from pip._vendor.packaging import requirements, tags, utils
lines, places = json.load(sys.stdin)
fitting, there, lack = set(tags.sys_tags()), {}, []
for name in (name for place in places if os.path.isdir(place) for name in os.listdir(place)):
    try:
        project, version, _, kinds = utils.parse_wheel_filename(name)
    except Exception:
        continue
    if not fitting.isdisjoint(kinds):
        there.setdefault(project, set()).add(version)
for line in lines:
    asked = requirements.Requirement(line.split(" --")[0].split(" #")[0])
    if asked.url or (asked.marker and not asked.marker.evaluate()):
        continue
    if not any(asked.specifier.contains(each, True) for each in there.get(utils.canonicalize_name(asked.name), ())):
        lack.append(asked.name + str(asked.specifier))
print(json.dumps(lack))
"""
"""What an environment's own Python says of requirements, by the packaging that pip brings: names and tags are pip's."""

WHEELS = "offline-wheels"
CONFIG_S = 60.0


@dataclass(frozen=True)
class Sources:
    """Where packages may come from: `find_links` beside what else applies; offline, only from there and the cache."""

    offline: bool = False
    find_links: tuple[str, ...] = ()


def sources(offline: bool, find_links: list[str]) -> Sources:
    """What a call asked for, its paths made absolute. UsageError: one is not there, or is an address and offline."""
    found = []
    for each in find_links:
        if "://" in each and not each.startswith("file://"):
            if offline:
                raise UsageError(f"--find-links {each}: --offline asks no network; name a folder of wheels")
            found.append(each)
            continue
        path = os.path.abspath(os.path.expanduser(_place(each)))
        if not os.path.exists(path):
            raise UsageError(f"--find-links {each}: {path} is not there; name a folder that holds wheels")
        found.append(path)
    return Sources(offline, tuple(found))


def absolute(environ: Mapping[str, str], folder: str | None = None) -> dict[str, str]:
    """An environment whose PIP_* name no path relative to a folder, this one unless given."""
    return {name: _absolute(_key(name), value, folder) for name, value in environ.items()}


def _absolute(key: str, value: str, folder: str | None = None) -> str:
    if not value.strip() or (key not in PLACE and key not in PLACES):
        return value
    here = os.getcwd() if folder is None else folder
    parts = value.split() if key in PLACES else [value]
    return " ".join(each if "://" in each else os.path.join(here, os.path.expanduser(each)) for each in parts)


def _key(name: str) -> str:
    return name.removeprefix("PIP_").lower().replace("_", "-") if name.startswith("PIP_") else ""


class Pip:
    """pip for one environment: `environ` is what its programs run with, `left_out` the settings that do not apply."""

    def __init__(self, python: str, folder: str, asked: Sources) -> None:
        """`python` is the environment's own, `folder` is the environment. SchedqError if pip's settings are broken."""
        self.argv = [python, "-I", "-m", "pip", "--no-input", "--disable-pip-version-check"]
        self.asked = asked
        self._wheels = os.path.join(folder, WHEELS)
        environ = absolute(clean(os.environ))
        settings = {**_configured(self.argv, environ), **{_key(n): v for n, v in environ.items() if _key(n)}}
        settings.pop("config-file", None)
        self.left_out = sorted(name for name in settings if name in LEFT_OUT and _counts(settings[name]))
        self.cache = settings.get("cache-dir") or _cache(environ)
        links = settings.get("find-links", "").split()
        self._links = [_place(each) for each in links if "://" not in each or each.startswith("file://")]
        kept = {name: value for name, value in settings.items() if name not in LEFT_OUT}
        if asked.offline:
            kept = {name: value for name, value in kept.items() if name not in ONLINE}
        self.environ = {name: value for name, value in environ.items() if not _key(name)}
        self.environ.update({f"PIP_{name.upper().replace('-', '_')}": value for name, value in kept.items()})
        self.environ["PIP_CONFIG_FILE"] = os.devnull
        if asked.offline:
            for name in ("http_proxy", "https_proxy", "all_proxy"):
                self.environ[name] = self.environ[name.upper()] = NOWHERE
            for name in ("no_proxy", "NO_PROXY"):
                self.environ.pop(name, None)

    def install(self, *options: str) -> list[str]:
        """The argv that installs what its options say."""
        argv = [*self.argv, "install", "--progress-bar", "off", "--no-color"]
        for link in self.asked.find_links:
            argv += ["--find-links", link]
        if self.asked.offline:
            for link in (*self._links, self._wheels):
                argv += ["--find-links", link]
            argv += ["--no-index", "--only-binary", ":all:"]
        return [*argv, *options]

    def ready(self, requirements: list[str]) -> list[str]:
        """The requirements as they are installed; offline the cached wheels are laid out first.

        Offline a package that is named by its address is taken from a wheel of the address's name. SchedqError if that
        is not there.
        """
        if not self.asked.offline:
            return requirements
        cached_wheels.lay_out(self.cache, self._wheels)
        found, faults = [], []
        for line in requirements:
            try:
                found.append(self._near(line))
            except SchedqError as fault:
                faults.append(str(fault))
        if faults:
            raise SchedqError("\n".join(faults))
        return found

    def lacking(self, requirements: list[str]) -> list[str]:
        """Those of some requirements of which no wheel is in the places that packages come from offline.

        Once `ready` has laid out the cached wheels. Empty where that cannot be told: what pip says of one counts then.
        """
        places = [*self.asked.find_links, *self._links, self._wheels]
        if any(os.path.exists(each) and not os.path.isdir(each) for each in places):
            return []
        asked = json.dumps([[line for line in requirements if line[:1] not in "-#"], places])
        try:
            done = subprocess.run(
                [self.argv[0], "-I", "-c", LACKING], env=self.environ, input=asked, capture_output=True, text=True,
                timeout=CONFIG_S, check=True,
            )  # fmt: skip
            return [str(each) for each in json.loads(done.stdout)]
        except (OSError, subprocess.SubprocessError, ValueError):
            return []

    def _near(self, line: str) -> str:
        name, at, rest = line.partition("@")
        address, *more = rest.strip().split(None, 1) or [""]
        if not at or "#" in name or "://" not in address or address.startswith("file://"):
            return line
        parts = urlsplit(address)
        wheel = unquote(os.path.basename(parts.path))
        for folder in (*self.asked.find_links, *self._links, self._wheels):
            path = os.path.join(folder, wheel)
            if wheel.endswith(".whl") and os.path.isfile(path):
                there = f"file://{quote(os.path.realpath(path))}{f'#{parts.fragment}' if parts.fragment else ''}"
                return " ".join([f"{name.strip()} @ {there}", *more])
        raise SchedqError(
            f"{name.strip()} is installed from {address}, and --offline asks no network: no wheel {wheel or 'of it'} "
            f"is in {self.where()}; bring it into a folder, and name that by --find-links"
        )

    def where(self) -> str:
        """The places that packages come from offline, for a message."""
        return ", ".join([*self.asked.find_links, *self._links, f"pip's cache ({self.cache})"])


def _place(link: str) -> str:
    """The folder or file that a link of this machine names."""
    return unquote(urlsplit(link).path) if "://" in link else link


def _cache(environ: Mapping[str, str]) -> str:
    kept = os.path.join(environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "pip")
    return environ.get("PIP_CACHE_DIR") or kept


def rooms(folder: str, environ: Mapping[str, str]) -> str:
    """How much each disk has free that an installation writes to, a few words each; `environ` is what pip ran with."""
    places = {
        folder: "",
        environ.get("TMPDIR") or tempfile.gettempdir(): " (TMPDIR)",
        _cache(environ): " (pip's cache)",
    }
    told = []
    for place, what in places.items():
        there = place
        while not os.path.isdir(there) and os.path.dirname(there) != there:
            there = os.path.dirname(there)
        told.append(f"{shutil.disk_usage(there).free / 2**30:.2f} GiB in {place}{what}")
    return ", ".join(told)


def clean(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment without what points a Python elsewhere than to its own packages."""
    return {name: value for name, value in environ.items() if name not in NOT_INHERITED}


def _counts(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "no", "off")


def _configured(argv: list[str], environ: Mapping[str, str]) -> dict[str, str]:
    """What pip's configuration files say of an installation. Asked apart: it holds passwords, and no log is to."""
    asking = {name: value for name, value in environ.items() if not _key(name) or name == "PIP_CONFIG_FILE"}
    asking.update(dict.fromkeys(OF_ASKING, "0"))
    try:
        done = subprocess.run(
            [*argv, "config", "list"], env=asking, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            errors="replace", timeout=CONFIG_S, check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SchedqError(f"pip's configuration could not be read: {error}") from None
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise SchedqError(f"pip's configuration cannot be read: {said[-1] if said else 'no reason'}; correct pip.conf")
    found: dict[str, dict[str, str]] = {"global": {}, "install": {}}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        section, _, name = key.partition(".")
        if section in found:
            try:
                text = str(ast.literal_eval(value))
            except (ValueError, SyntaxError):
                continue
            found[section][name] = _absolute(name, text)
    return {**found["global"], **found["install"]}
