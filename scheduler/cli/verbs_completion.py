"""The verb that teaches a shell the words of a call: a part of the table of all."""

from __future__ import annotations

from scheduler.cli.options import MORE, Argument, Verb

COMPLETION: tuple[Verb, ...] = (
    Verb(
        "completion",
        "shells:completion",
        "Print the script by which a shell completes verbs, slugs and ids.",
        told="Put it where the shell finds it, and open a new one:\n\n\b\n"
        'bash   eval "$(schedq completion bash)"   in ~/.bashrc\n'
        'zsh    eval "$(schedq completion zsh)"    in ~/.zshrc, after compinit\n'
        "fish   schedq completion fish > ~/.config/fish/completions/schedq.fish",
        arguments=(Argument("SHELL", "bash, zsh or fish; that of $SHELL unless given", least=0),),
        examples=("schedq completion bash", "schedq completion zsh"),
        panel=MORE,
        fast=True,
    ),
)
