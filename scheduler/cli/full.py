"""The Typer app, made from the table of verbs: `--help` and the verbs that are seldom asked."""

from __future__ import annotations

import errno
import inspect
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer
from rich.markup import escape
from typer import rich_utils
from typer.core import TyperCommand, TyperGroup

from scheduler.cli import grammar, say
from scheduler.cli.fast import Call, carry_out
from scheduler.cli.options import Verb
from scheduler.errors import Temporary, UsageError

ABOUT = """A durable queue for machines that hold too many models.

Queue a request with `submit` or `run`, look with `status`; the scheduler (`up`) starts workers as memory allows."""


def values_of(verb: Verb, given: dict[str, Any]) -> dict[str, object]:
    """What Typer parsed, in the form that the fast parser gives: only what was typed."""
    values: dict[str, object] = {}
    for argument in verb.arguments:
        value = given[argument.key]
        if argument.many:
            values[argument.key] = list(value or [])
        elif value is not None:
            values[argument.key] = value
    for option in verb.options:
        value = given[option.key]
        if option.many and value:
            values[option.key] = list(value)
        elif not option.many and value is not None and value is not False:
            values[option.key] = value
    return values


def function_of(verb: Verb, perform: Callable[[Verb, Call], int]) -> Callable[..., None]:
    """A function with the signature that Typer reads, for one verb of the table."""

    def command(**given: Any) -> None:
        code = perform(verb, Call(verb.name, values_of(verb, given)))
        if code:
            raise typer.Exit(code)

    parameters = []
    for argument in verb.arguments:
        info = typer.Argument(metavar=argument.metavar, help=escape(argument.help), show_default=False)
        kind: Any = list[str] if argument.many else str
        default: Any = inspect.Parameter.empty
        if not argument.least:
            kind, default = (list[str] | None if argument.many else str | None), None
        parameters.append(_parameter(argument.key, Annotated[kind, info], default))
    for option in verb.options:
        flags = [option.flag, option.short] if option.short else [option.flag]
        info = typer.Option(*flags, metavar=option.metavar or None, help=escape(option.help), show_default=False)
        kind = (list[str] | None if option.many else str | None) if option.metavar else bool
        parameters.append(_parameter(option.key, Annotated[kind, info], None if option.metavar else False))
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__name__ = verb.name.replace(" ", "_")
    return command


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _help(verb: Verb) -> str:
    paragraphs = [verb.summary, verb.told] if verb.told else [verb.summary]
    return "\n\n".join([*map(escape, paragraphs), _examples(verb)])


def _examples(verb: Verb) -> str:
    return "\b\n" + escape("\n".join(["Examples:", *(f"  {example}" for example in verb.examples)]))


def _epilog(verb: Verb) -> str | None:
    """The words that options take, one paragraph each across the whole page."""
    told = [f"{option.flag}: {option.words}" for option in verb.options if option.words]
    return "\n\n".join(map(escape, told)) or None


def build(perform: Callable[[Verb, Call], int] = carry_out) -> typer.Typer:
    """The whole app. `perform` carries a parsed call out."""
    app = _app(ABOUT)
    app.callback(help=ABOUT)(_front)
    groups = {}
    for name, (about, _default) in grammar.GROUPS.items():
        shown = next(verb for verb in grammar.TABLE if verb.name.startswith(name + " "))
        groups[name] = _app(f"{about}\n\n{_examples(shown)}")
    for verb in grammar.TABLE:
        first, _, second = verb.name.rpartition(" ")
        (groups[first] if first else app).command(
            second or verb.name,
            cls=_Command,
            help=_help(verb),
            short_help=escape(verb.summary),
            epilog=_epilog(verb),
            hidden=verb.panel == grammar.HIDDEN,
            rich_help_panel=verb.panel or None,
        )(function_of(verb, perform))
    for name, group in groups.items():
        app.add_typer(group, name=name, rich_help_panel="Groups")
    return app


def _front(
    version: Annotated[bool, typer.Option("--version", help="The versions of schedq, Python and SQLite.")] = False,
) -> None:
    """What stands before a verb; `--version` is carried out before this is asked (grammar.verb_of)."""


class _Bare:
    """A command whose words and flags, `--help` among them, are shown as what they are: without the type of a value."""

    def get_params(self, ctx: Any) -> list[Any]:
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False):
                each.metavar = ""
            elif getattr(each, "param_type_name", "") == "argument" or not each.opts[0].startswith("-"):
                each.display_type_rich = lambda **_: None
        return found


class _Command(_Bare, TyperCommand):
    pass


class _Group(_Bare, TyperGroup):
    pass


def _app(about: str) -> typer.Typer:
    return typer.Typer(
        cls=_Group,
        help=about,
        add_completion=False,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]},
    )


def _unprinted(error: OSError) -> Exception:
    """What an error of the disk means here: stdout took no more. What is left in its buffer goes nowhere."""
    if error.filename is not None or error.errno == errno.EPIPE:
        return error
    os.dup2(os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC), 1)
    return Temporary(f"stdout cannot be written ({error.strerror}): the output is cut off; free it and ask again")


def main(argv: list[str]) -> int:
    """Run argv through Typer; the exit code. UsageError for a call that it cannot parse."""
    if "NO_COLOR" in os.environ:
        rich_utils.FORCE_TERMINAL = False  # else NO_COLOR leaves bold and dim
    command = typer.main.get_command(build())
    try:
        answer = command.main(args=argv, prog_name="schedq", standalone_mode=False)
        sys.stdout.flush()
    except typer.Exit as left:
        return int(left.exit_code)
    except SystemExit as left:
        if left.code == 1:
            raise say.Quiet(say.BROKEN_PIPE) from None  # what Rich does when nobody reads
        raise
    except OSError as error:
        raise _unprinted(error) from None
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        raise UsageError(f"{error.format_message().rstrip('.')}; schedq --help lists what there is") from None
    return int(answer or 0)
