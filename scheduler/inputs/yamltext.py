"""YAML, read to be checked: YAML 1.2, every value as JSON has it, every refusal with line and column.

A chain that is called NO stays text and a key stays what was written. Dates stay text as well. What JSON has
no word for (.nan, sets, binary) is refused, and so are aliases that expand without end.
"""

from __future__ import annotations

from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from scheduler.errors import InvalidInput
from scheduler.inputs.formats import DEEPEST, place, shortened

TAG = "tag:yaml.org,2002:"
SPARE = 1_000_000


def parse_yaml(text: str, what: str) -> Any:
    """The value of a YAML text, as JSON would have it. InvalidInput names line and column."""
    try:
        root = YAML(typ="safe", pure=True).compose(text)
    except MarkedYAMLError as error:
        raise InvalidInput(f"{what}: not YAML: {_told(error)}") from None
    except RecursionError:
        raise InvalidInput(f"{what}: nested more than {DEEPEST} levels deep; flatten it") from None
    except Exception as error:
        raise InvalidInput(f"{what}: not YAML: {_elsewhere(text, error)}") from None
    if root is None:
        raise InvalidInput(f"{what}: a YAML text without a value; write the request into it")
    return _Reader(what, len(text) + SPARE).value(root, 0)


def _told(error: MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    says = error.problem or error.context or "cannot be read"
    return where + " ".join(str(says).split())


def _elsewhere(text: str, error: Exception) -> str:
    position = getattr(error, "position", None)
    where = f"{place(text, position)}: " if isinstance(position, int) else ""
    reason = getattr(error, "reason", None) or str(error).split("\n", 1)[0] or type(error).__name__
    return f"{where}{reason}"


class _Reader:
    """One pass over a composed document; `left` bounds what aliases may expand to."""

    def __init__(self, what: str, left: int) -> None:
        self.what = what
        self.left = left
        self.open: set[int] = set()

    def refuse(self, node: Node, why: str) -> InvalidInput:
        """The refusal of a node, with its place."""
        mark = node.start_mark
        return InvalidInput(f"{self.what}: line {mark.line + 1}, column {mark.column + 1}: {why}")

    def value(self, node: Node, depth: int) -> Any:
        """A node as a JSON value, `depth` levels down."""
        self.left -= 1
        if self.left < 0:
            raise self.refuse(node, f"its aliases expand to more than {SPARE} values; write out what is meant")
        if isinstance(node, ScalarNode):
            return self.scalar(node)
        if id(node) in self.open:
            raise self.refuse(node, "an alias that holds itself; write out what is meant")
        if depth >= DEEPEST:
            raise self.refuse(node, f"nested more than {DEEPEST} levels deep; flatten it")
        self.open.add(id(node))
        try:
            if isinstance(node, SequenceNode) and node.tag == TAG + "seq":
                return [self.value(child, depth + 1) for child in node.value]
            if isinstance(node, MappingNode) and node.tag == TAG + "map":
                return self.mapping(node, depth + 1)
        finally:
            self.open.discard(id(node))
        raise self.refuse(node, f"{self.tag(node)} has no counterpart in JSON; write a list or a mapping")

    def tag(self, node: Node) -> str:
        """The tag of a node, as YAML writes it."""
        return "!!" + str(node.tag).removeprefix(TAG) if str(node.tag).startswith(TAG) else str(node.tag)

    def mapping(self, node: MappingNode, depth: int) -> dict[str, Any]:
        """A mapping, what it merges in (`<<`) below its own keys."""
        own: dict[str, Any] = {}
        under: dict[str, Any] = {}
        for key, child in node.value:
            if not isinstance(key, ScalarNode):
                raise self.refuse(key, "a key must be text, and this is a list or a mapping")
            if key.tag == TAG + "merge":
                for table in child.value if isinstance(child, SequenceNode) else [child]:
                    if not isinstance(table, MappingNode):
                        raise self.refuse(child, "<< takes a mapping or a list of mappings")
                    under = self.value(table, depth) | under
                continue
            if key.value in own:
                raise self.refuse(key, f"the key {shortened(key.value)} is there twice; keep one")
            own[self.text(key)] = self.value(child, depth)
        return under | own

    def text(self, node: ScalarNode) -> str:
        """A scalar as it is written."""
        written: str = node.value
        if not written.isascii() and any("\ud800" <= each <= "\udfff" for each in written):
            raise self.refuse(node, "holds half a surrogate pair, which is no character")
        return written

    def scalar(self, node: ScalarNode) -> Any:
        """A scalar as null, true or false, a number or text."""
        written = self.text(node)
        kind = str(node.tag).removeprefix(TAG)
        try:
            if kind == "null":
                return None
            if kind == "bool":
                return written.lower() in ("true", "yes", "on", "y")
            if kind == "int":
                return _whole(written)
            if kind == "float":
                number = float(written.replace("_", ""))
                if number - number != 0.0:
                    raise ValueError
                return number
        except ValueError:
            raise self.refuse(node, f"{shortened(written)} is no number that JSON can hold") from None
        if kind in ("str", "timestamp"):
            return written
        raise self.refuse(
            node, f"{self.tag(node)} has no counterpart in JSON; write text, a number, true, false or null"
        )


def _whole(written: str) -> int:
    digits = written.replace("_", "")
    sign = -1 if digits.startswith("-") else 1
    digits = digits.lstrip("+-")
    base = {"0x": 16, "0o": 8, "0b": 2}.get(digits[:2].lower())
    return sign * (int(digits[2:], base) if base else int(digits, 10))
