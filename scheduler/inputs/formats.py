"""The kinds of input files, and how each is read in order to be checked: JSON, YAML, FASTA, PDB, mmCIF, text, bytes.

A model's own parser stays the authority: what is parsed here is checked and looked into, and the file's own
bytes travel on. Every refusal names a place (line and column, or byte). Imported by the fast paths: standard
library only; the YAML parser is loaded when a YAML file is there.
"""

from __future__ import annotations

import json

from scheduler.errors import InvalidInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

KINDS = {
    ".json": "json", ".yaml": "yaml", ".yml": "yaml", ".fa": "fasta", ".fasta": "fasta", ".fna": "fasta",
    ".faa": "fasta", ".pdb": "pdb", ".cif": "cif", ".mmcif": "cif",
}  # fmt: skip
WORDS = {"json": "JSON", "yaml": "YAML", "fasta": "FASTA", "pdb": "PDB", "cif": "mmCIF"}

DEEPEST = 200
"""Levels of nesting that an input may have: every later reader, the model's included, must be able to walk it."""


class Unacceptable(ValueError):
    """Raised inside a parser for what JSON allows to be written and a request may not hold."""


def suffix(name: str, accept: list[str]) -> str:
    """The part of a file's name that says its kind, in lower case: an accepted ending, else the suffix."""
    low = name.lower()
    for ending in sorted(accept, key=len, reverse=True):
        if ending and low.endswith(ending.lower()) and len(low) > len(ending):
            return ending.lower()
    dot = low.rfind(".")
    return low[dot:] if dot > 0 else ""


def accepted(ending: str, accept: list[str]) -> bool:
    """Whether a suffix is accepted: by itself, or because its kind is (`.yml` where `.yaml` is)."""
    if ending in [each.lower() for each in accept]:
        return True
    return ending in KINDS and KINDS[ending] in [KINDS.get(each.lower()) for each in accept]


def sniffed(data: bytes, accept: list[str]) -> str:
    """The suffix that unnamed bytes are taken for: the only accepted one, else by their first character."""
    kinds = {KINDS.get(each.lower(), each): each for each in reversed(accept)}
    start = data[:4096].lstrip()[:1]
    if start in (b"{", b"["):
        return kinds.get("json") or kinds.get("yaml") or accept[0]
    if start == b">":
        return kinds.get("fasta") or accept[0]
    return next((each for each in accept if KINDS.get(each.lower()) != "json"), accept[0])


def decoded(data: bytes, what: str, kind: str) -> str:
    """The text of a text kind. InvalidInput with the offset of the first byte that is not UTF-8.

    Structures are read by columns and words of ASCII: what else is in their remarks is a model's own business.
    """
    if kind in ("pdb", "cif"):
        return data.decode("utf-8", "replace")
    word = WORDS.get(kind, kind)
    if data.startswith(b"\xef\xbb\xbf") and kind != "yaml":
        raise InvalidInput(
            f"{what}: starts with a byte order mark (EF BB BF), which {word} has not; save it without one"
        )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidInput(
            f"{what}: byte {error.start} (0x{data[error.start]:02X}) is not UTF-8, which {word} must be; "
            "save the file as UTF-8"
        ) from None


def place(text: str, offset: int) -> str:
    """An offset in words: `line 3, column 5`, both counted from 1."""
    return f"line {text.count(chr(10), 0, offset) + 1}, column {offset - text.rfind(chr(10), 0, offset)}"


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these pairs; Unacceptable if a key is there twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise Unacceptable
    return found


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0.0:
        raise Unacceptable
    return number


def _no_constant(_: str) -> NoReturn:
    raise Unacceptable


_DECODER = json.JSONDecoder(object_pairs_hook=unique, parse_float=_finite, parse_constant=_no_constant)


def parse_json(text: str, what: str) -> Any:
    """The value of a JSON text. InvalidInput for syntax, a key that is there twice, NaN, Infinity, lone surrogates,
    numbers that no double or integer holds, and more than 200 levels of nesting."""
    try:
        value = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        near = text[error.pos : error.pos + 20].split("\n", 1)[0]
        seen = (
            f"near {near!r}" if near else "at the end of a line" if error.pos < len(text) else "at the end of the file"
        )
        raise InvalidInput(
            f"{what}: not JSON: {place(text, error.pos)}, {seen}: {error.msg[:1].lower()}{error.msg[1:]}"
        ) from None
    except RecursionError:
        raise InvalidInput(_too_deep(what)) from None
    except ValueError:
        raise InvalidInput(_why_not(text, what)) from None
    if (text.count("[") + text.count("{") > DEEPEST) and deeper(value, DEEPEST):
        raise InvalidInput(_too_deep(what))
    if "\\u" in text:
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise InvalidInput(_why_not(text, what)) from None
    return value


def _too_deep(what: str) -> str:
    return f"{what}: nested more than {DEEPEST} levels deep; flatten it"


def deeper(value: Any, limit: int) -> bool:
    """Whether a value of lists and mappings is nested deeper than `limit` levels."""
    level = [value] if type(value) in (dict, list) else []
    for _ in range(limit):
        if not level:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if type(item) is dict else item)
            if type(child) is dict or type(child) is list
        ]
    return bool(level)


def _why_not(text: str, what: str) -> str:
    """The first thing in a well-formed JSON text that a request may not hold, with its place."""
    import re

    token = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|-?Infinity|NaN|-?[0-9][0-9.eE+-]*')
    open_keys: list[dict[str, int] | None] = []
    key_next = False
    for match in token.finditer(text):
        word, start = match.group(), match.start()
        if word in ("{", "["):
            open_keys.append({} if word == "{" else None)
            key_next = word == "{"
        elif word in ("}", "]"):
            open_keys.pop()
            key_next = False
        elif word == ",":
            key_next = open_keys[-1] is not None
        elif word == ":":
            key_next = False
        elif word[0] == '"':
            plain = json.loads(word)
            if any("\ud800" <= each <= "\udfff" for each in plain):
                return f"{what}: {place(text, start)}: {shortened(word)} is half a surrogate pair, no character"
            keys = open_keys[-1] if open_keys else None
            if key_next and keys is not None:
                if plain in keys:
                    return (
                        f"{what}: {place(text, start)}: the key {shortened(word)} is there twice, first at "
                        f"{place(text, keys[plain])}; keep one"
                    )
                keys[plain] = start
        elif word in ("NaN", "Infinity", "-Infinity"):
            return f"{what}: {place(text, start)}: {word} is no JSON number; write a number or null"
        elif word.lstrip("-").isdigit():
            try:
                int(word)
            except ValueError:
                return f"{what}: {place(text, start)}: a whole number of {len(word)} digits is more than can be read"
        elif abs(float(word)) == float("inf"):
            return f"{what}: {place(text, start)}: {shortened(word)} is larger than a number can be (1.8e308)"
    return f"{what}: not a JSON text that can be read"


def shortened(value: object, limit: int = 60) -> str:
    """A found value for a message: as JSON where it is that, cut in the middle of nothing important."""
    if isinstance(value, str) and value[:1] == '"':
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 20]}... ({len(text)} characters)"


def _lines(text: str) -> list[str]:
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return text.split("\n")


def is_index(word: str) -> bool:
    """Whether a word of a JSON pointer can be an index: ASCII digits, no leading zero (RFC 6901)."""
    return word == "0" or (word.isascii() and word.isdigit() and word[0] != "0" and len(word) < 16)


def check_fasta(text: str, what: str) -> None:
    """InvalidInput unless the text is records of a `>` line and at least one line of sequence each."""
    header, filled = 0, True
    for number, line in enumerate(_lines(text), 1):
        if line[:1] == ">":
            if not filled:
                break
            header, filled = number, False
        elif line and not line.isspace():
            if not header:
                raise InvalidInput(
                    f"{what}: line {number}: a FASTA record starts with a '>' line, and this is {shortened(line, 40)}; "
                    "put a line like '>name' before it"
                )
            if not line.isprintable() and any(each < " " and each != "\t" for each in line):
                raise InvalidInput(f"{what}: line {number}: holds a control character, which no sequence has")
            filled = True
    if not filled:
        raise InvalidInput(f"{what}: line {header}: the record has no sequence; add one or remove its '>' line")


def check_pdb(text: str, what: str) -> None:
    """InvalidInput if there is no ATOM or HETATM line, or the first one is hidden behind a byte order mark."""
    if text.startswith(("\ufeffATOM  ", "\ufeffHETATM")):
        raise InvalidInput(
            f"{what}: starts with a byte order mark (EF BB BF), and its first atom would not be seen; save it without"
        )
    padded = "\n" + text.replace("\r", "\n")
    if "\nATOM  " not in padded and "\nHETATM" not in padded:
        raise InvalidInput(
            f"{what}: no ATOM or HETATM line in {len(text)} characters; a PDB file without atoms is no input"
        )


def check_cif(text: str, what: str) -> None:
    """InvalidInput if there is no data block."""
    if "\ndata_" not in "\n" + text.removeprefix("\ufeff").replace("\r", "\n").lower():
        raise InvalidInput(f"{what}: no line starts with data_; an mmCIF file has a data block at least")
