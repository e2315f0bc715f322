"""`dovetail completion SHELL`: print a script that completes commands, options and file names."""

from argparse import ArgumentParser, Namespace

COMMANDS = ("dovetail", "dovetail-mcp")
BASH = """\
_dovetail() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" options=""
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "{verbs}" -- "$word"))
    return
  fi
  case "${{COMP_WORDS[1]}}" in
{cases}
  esac
  case "$word" in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) COMPREPLY=($(compgen -f -- "$word")) ;;
  esac
}}
complete -o filenames -F _dovetail {commands}
"""
SHELLS = ("bash", "zsh", "fish")


def add_completion_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=SHELLS, help=", ".join(SHELLS))


def print_completion(options: Namespace) -> None:
    """Print the script for a shell; `options.known` contains the options for each verb."""
    known: dict[str, list[str]] = options.known
    if options.shell == "fish":
        print(_fish(known), end="")
        return
    if options.shell == "zsh":
        print("autoload -Uz bashcompinit compinit && compinit && bashcompinit")
    cases = [f'    {verb}) options="{" ".join(words)}" ;;' for verb, words in known.items()]
    commands = " ".join(COMMANDS)
    print(BASH.format(verbs=" ".join(known), cases="\n".join(cases), commands=commands), end="")


def _fish(known: dict[str, list[str]]) -> str:
    lines = []
    for command in COMMANDS:
        verbs = " ".join(known)
        lines.append(f'complete -c {command} -n __fish_use_subcommand -f -a "{verbs}"')
        lines += [
            f'complete -c {command} -n "__fish_seen_subcommand_from {verb}" -l {word[2:]}'
            for verb, words in known.items()
            for word in words
            if word.startswith("--")
        ]
    return "\n".join(lines) + "\n"
