"""What a page says of the night ahead: the calls that are due within a day, and notices that nobody took."""

from __future__ import annotations

from scheduler.cli.say import counted, cut, page_width, paint, span, wrap
from scheduler.clock import seconds

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def lines(whole: dict[str, Any], now: float) -> list[str]:
    """A line for each call that is due within a day, or runs; and one for notices that could not be told."""
    told = [cut(_line(row, now), page_width()) for row in whole.get("schedules") or ()]
    news = whole.get("notices")
    if news:
        words = [f"{counted(news['waiting'], 'notice')} not told yet"] if news["waiting"] else []
        words += [f"{counted(news['given_up'], 'notice')} given up"] if news["given_up"] else []
        text = f"{', '.join(words)}: {news['error']}; schedq notify list shows them"
        told += [paint(line, "yellow") for line in wrap(text, "")]
    return ["", *told] if told else []


def _line(row: dict[str, Any], now: float) -> str:
    import shlex

    if row["began_at"]:
        when = f"runs for {span(now - seconds(row['began_at']))}"
    else:
        left_s = seconds(row["next_at"]) - now
        when = f"in {span(left_s)}" if left_s > 0 else f"due for {span(-left_s)}"
    return f"schedule {row['id']}, {when}: schedq {shlex.join(row['call'])}"
