"""What happened to a job, in words for whoever asked for it; `show --json` has the events as they were recorded."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]

ENDINGS = ("succeed", "fail", "time_out", "give_up", "stop", "cancel", "parent_failed")
"""Events that are one with the job's last line, which says how it ended."""

TOLD = {
    "submit": "{text}",
    "send": "sent to worker {worker}",
    "retry": "attempt {attempt} ended ({kind}), to be tried again",
    "give_back": "taken back from worker {worker} ({kind}), not counted as a try",
    "park": "held by its policy after attempt {attempt} ({kind})",
    "input": "its input was made of what it takes from other jobs: {text}",
    "hold": "held by its operator",
    "release": "let go by its operator",
    "requeue": "queued again by its operator, {text}",
    "update": "changed by its operator: {text}",
    "late": "{text}",
    "reclaim": "{text}",
    "reclaimed": "{text}",
    "replaced": "its request was {text}",
    "overwritten": "{text}",
    "moved_aside": "{text}",
}


def lines(story: list[Row]) -> list[tuple[str, str]]:
    """(stamp, sentence) of what happened, in order; what is said elsewhere on the page is not said again."""
    told: list[tuple[str, str]] = []
    warm = False
    for at, event in enumerate(story):
        last = at == len(story) - 1
        name, text = event["event"], str(event.get("text") or "")
        if name == "admit":
            warm = text == "warm"
            if not warm:
                told.append((event["at"], f"worker {event.get('worker_id')} is started for it"))
        elif name == "cancel" and not last:
            told.append((event["at"], f"told to stop, {text}"))
        elif name in ENDINGS and not last:
            continue
        elif event.get("worker_id") is None and event.get("attempt") and last:
            told.append((event["at"], name.replace("_", " ")))
        else:
            told.append((event["at"], _sentence(event, name, text) + (", which was warm" * (warm and name == "send"))))
    return told


def _sentence(event: Row, name: str, text: str) -> str:
    kind = text.partition(":")[0]
    if name == "park" and event.get("attempt") is None:
        return f"held, since {text}"
    if name in TOLD:
        return TOLD[name].format(
            text=text, kind=kind.replace("_", " "), worker=event.get("worker_id"), attempt=event.get("attempt")
        )
    return f"waits ({name}): {text}" if text else name.replace("_", " ")
