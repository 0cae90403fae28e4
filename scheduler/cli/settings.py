"""`schedq config show`: every setting with its origin."""

from __future__ import annotations

from scheduler import config
from scheduler.cli import say
from scheduler.cli.fast import Call


def show(call: Call) -> int:
    """Print settings, folders, and where each value came from."""
    found = config.settings()
    if call.flag("json"):
        values = {key: {"value": value, "origin": found.origins[key]} for key, value in found.values.items()}
        say.out(say.document({"schema_version": 1, "settings": values, "providers": found.providers}))
        return 0
    say.out(f"{'setting':26} {'value':12} origin")
    for key in sorted(found.values):
        say.out(f"{key:26} {say.fill(str(found.values[key]), 12)} {say.plain(found.origins[key])}")
    for slug, over in sorted(found.providers.items()):
        if isinstance(over, dict):
            for key, value in over.items():
                say.out(f"providers.{slug}.{key} = {say.plain(str(value))}")
    say.out("looked at, later wins: " + ", ".join(map(say.plain, config.config_files())) + ", SCHEDQ_<SETTING>")
    return 0
