"""The command line's front door: everyday verbs without a framework, the rest through Typer."""

from __future__ import annotations

import os
import sys

from scheduler.errors import SchedqError


def main() -> None:
    """Carry out sys.argv and leave with its exit code."""
    argv = sys.argv[1:]
    code, fast = answer(argv)
    if fast:
        # Not by way of interpreter shutdown: closing the database there would checkpoint outside the turnstile.
        os._exit(code)
    sys.exit(code)


def answer(argv: list[str]) -> tuple[int, bool]:
    """The exit code of a call, and whether it took the fast path; every error as one message on stderr."""
    from scheduler.cli import say

    fast = True
    try:
        if "_SCHEDQ_WORDS" in os.environ:
            from scheduler.cli import completing

            return completing.carry_out(argv), fast
        from scheduler.cli import grammar

        verb, rest = grammar.verb_of(argv)
        if verb is None:
            fast = False
            return _typer(rest), fast
        fast = verb.fast
        if not _asks_help(rest):
            from scheduler.cli.fast import carry_out, parse

            call = parse(verb, rest)
            if fast:
                return carry_out(verb, call), fast
        return _typer([*verb.name.split(" "), *rest]), False
    except SchedqError as error:
        say.note(f"schedq: {error}")
        return error.exit_code, fast
    except say.Quiet as left:
        return left.code, True
    except KeyboardInterrupt:
        return 130, fast
    except BrokenPipeError:
        return say.BROKEN_PIPE, True
    except Exception as error:
        if os.environ.get("SCHEDQ_DEBUG"):
            raise
        say.note(
            f"schedq: {type(error).__name__}: {error}\n"
            "schedq: this is a fault of schedq itself; SCHEDQ_DEBUG=1 shows where, please report it"
        )
        return 1, fast


def _asks_help(rest: list[str]) -> bool:
    for word in rest:
        if word == "--":
            return False
        if word in ("--help", "-h"):
            return True
    return False


def _typer(argv: list[str]) -> int:
    from scheduler.cli import full

    return full.main(argv)


if __name__ == "__main__":
    main()
