"""`schedq completion`: the scripts by which shells complete a call. Standard library only."""

from __future__ import annotations

import os

from scheduler.cli import say
from scheduler.cli.fast import Call
from scheduler.errors import UsageError

BASH = r"""# completion of schedq for bash
_schedq() {
    local program="${COMP_WORDS[0]/#\~/$HOME}" rest="${COMP_LINE:0:COMP_POINT}" at part line cur head= files=
    local -a words=()
    # bash parts words at = and : as well; those of the line are put together again
    for ((at = 0; at <= COMP_CWORD; at++)); do
        part="${COMP_WORDS[at]}"
        if [[ "$rest" == [[:space:]]* ]] || ((at == 0)); then
            rest="${rest#"${rest%%[![:space:]]*}"}"
            words+=("$part")
        else
            words[${#words[@]}-1]+="$part"
        fi
        rest="${rest#"$part"}"
    done
    cur="${words[${#words[@]}-1]}"
    case "$cur" in \"* | \'*) cur="${cur:1}" ;; esac
    words[${#words[@]}-1]="$cur"
    # what of the word bash has parted off already
    if [[ "$COMP_WORDBREAKS" == *=* && "$cur" == *=* ]]; then head="${cur%"${cur##*=}"}"; fi
    if [[ "$COMP_WORDBREAKS" == *:* && "${cur#"$head"}" == *:* ]]; then
        part="${cur#"$head"}"
        head="$head${part%"${part##*:}"}"
    fi
    COMPREPLY=()
    while IFS= read -r line; do
        case "$line" in
            $'\tfiles') files=1 ;;
            *)
                line="${line#"$head"}"
                if [[ "$line" == *[!A-Za-z0-9_.,:=/@%+-]* ]]; then printf -v line %q "$line"; fi
                COMPREPLY+=("$line")
                ;;
        esac
    done < <(_SCHEDQ_WORDS=bash "$program" "${words[@]:1}" 2>/dev/null)
    if [[ -n "$files" ]]; then
        compopt -o filenames 2>/dev/null
        while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "${cur#"$head"}")
    fi
    if [[ ${#COMPREPLY[@]} == 1 && "${COMPREPLY[0]}" == *= ]]; then compopt -o nospace 2>/dev/null; fi
}
complete -F _schedq schedq
"""

ZSH = r"""#compdef schedq
# completion of schedq for zsh
_schedq() {
    local line word about files
    local -a offered
    while IFS= read -r line; do
        word="${line%%$'\t'*}" about="${line#*$'\t'}"
        if [[ -z "$word" ]]; then files=1; continue; fi
        offered+=("${word//:/\\:}:$about")
    done < <(_SCHEDQ_WORDS=zsh ${~words[1]} "${(@Q)words[2,CURRENT]}" 2>/dev/null)
    local -a end
    if [[ ${#offered} == 1 && "${offered[1]%%:*}" == *= ]]; then end=(-S ''); fi
    (( ${#offered} )) && _describe -V schedq offered "${end[@]}"
    if [[ -n "$files" ]]; then
        [[ "$PREFIX" == -*=* ]] && compset -P '*='
        _files
    fi
}
if [[ "${funcstack[1]}" == _schedq ]]; then _schedq "$@"; else compdef _schedq schedq; fi
"""

FISH = r"""# completion of schedq for fish
function __schedq_words
    set -l words (commandline -opc)
    set -l begun (commandline -ct | string collect)
    set -l program (string replace -r '^~' $HOME -- $words[1])
    set -e words[1]
    for line in (_SCHEDQ_WORDS=fish $program $words "$begun" 2>/dev/null)
        if test "$line" = \t'files'
            __fish_complete_path "$begun"
        else
            echo $line
        end
    end
end
complete -c schedq -e
complete -c schedq -f -k -a '(__schedq_words)'
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completion(call: Call) -> int:
    """Print a shell's script. UsageError for a shell that there is none for."""
    asked = call.text("shell") or os.path.basename(os.environ.get("SHELL", ""))
    script = SCRIPTS.get(asked)
    if script is None:
        where = asked or "a shell that $SHELL does not name"
        raise UsageError(f"no script completes schedq in {where}; there are those for {', '.join(SCRIPTS)}")
    say.out(script.rstrip("\n"))
    if os.isatty(1):
        say.note("schedq: this is the script itself; where it goes: schedq completion --help")
    return 0
