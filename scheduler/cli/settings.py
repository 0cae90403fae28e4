"""`schedq config show`: every setting with its origin."""

from __future__ import annotations

from scheduler import catalog, config
from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.errors import UsageError


def show(call: Call) -> int:
    """Print settings, what they mean, and where each value came from; UsageError, after that, if one cannot be used."""
    found = config.declared()
    if call.flag("json"):
        values = {key: {"value": value, "origin": found.origins[key]} for key, value in found.values.items()}
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
        origin = found.origins[key]
        lines.append(f"{key:26} {say.fill(_shown(found.values[key]), 12)} {say.plain(origin)}")
        lines += [say.paint(line, "dim") for line in say.wrap(config.ABOUT[key], " " * 4)]
    for slug, over in sorted(found.providers.items()):
        if isinstance(over, dict):
            for key, value in over.items():
                lines += say.wrap(f"providers.{slug}.{key} = {_shown(value)}", "")
    lines += ["", "Looked at, later wins:"]
    lines += [f"  {say.plain(path)}" for path in config.config_files()]
    return [*lines, "  the environment: SCHEDQ_ and the setting's name, like SCHEDQ_LOG_MAX_MIB"]


def _shown(value: object) -> str:
    """A value as a configuration file has it."""
    return value if isinstance(value, str) else say.document(value, indent=False)
