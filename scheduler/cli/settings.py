"""`schedq config show`: every setting with its origin."""

from __future__ import annotations

from scheduler import catalog, config, settable
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.errors import UsageError


def show(call: Call) -> int:
    """Print settings, what they mean, and where each value came from; UsageError, after that, if one cannot be used."""
    found = config.declared()
    if call.flag("json"):
        values = {key: {"value": _value(found, key), "origin": found.origins[key]} for key in found.values}
        say.out(say.document({"schema_version": 1, "settings": values, "providers": found.providers}))
    else:
        say.out("\n".join(_page(found)))
    wrong = found.faults()
    if wrong:
        raise UsageError("\n".join(wrong))
    known = catalog.load(config.Paths())
    for odd in config.check([*known.providers, *known.broken]):
        say.note(f"warning: {odd}")
    return 0


def _page(found: config.Settings) -> list[str]:
    lines = [say.paint(f"{'setting':26} {'value':12} origin", "bold")]
    for key in sorted(found.values):
        origin, value = found.origins[key], _value(found, key)
        parts = _parts(value)
        if isinstance(value, str) and len(value) > 12:
            parts, value = [value], ""
        told = say.counted(len(parts), "entry").replace("entrys", "entries") if parts and value else _shown(value)
        lines.append(f"{key:26} {say.fill(told, 12)} {say.plain(origin)}")
        lines += [line for part in parts for line in say.wrap(part, " " * 4)]
        lines += [say.paint(line, "dim") for line in say.wrap(config.ABOUT[key], " " * 4)]
    for slug, over in sorted(found.providers.items()):
        if isinstance(over, dict):
            for key, value in over.items():
                lines += say.wrap(f"providers.{slug}.{key} = {_shown(value)}", "")
    lines += ["", "Looked at, later wins:"]
    lines += [f"  {say.plain(path)}" for path in config.config_files()]
    return [*lines, "  the environment: SCHEDQ_ and the setting's name, like SCHEDQ_LOG_MAX_MIB"]


def _value(found: config.Settings, key: str) -> object:
    """A value as it is meant: what the environment says in one word is a list or a table where the setting is one."""
    if found.fault(key) or key in settable.SECRET:
        return settable.open_part(key, found.values[key])
    match config.DEFAULTS[key]:
        case list():
            return list(found.words(key))
        case dict():
            return found.gib_by_name(key)
    return found.values[key]


def _parts(value: object) -> list[str]:
    """What a list or a table has, each as it is written in a file."""
    if isinstance(value, dict):
        return [f"{name} = {_shown(each)}" for name, each in value.items()]
    return [str(each) for each in value] if isinstance(value, list) else []


def _shown(value: object) -> str:
    """A value as a configuration file has it."""
    return value if isinstance(value, str) else say.document(value, indent=False)
