"""The frame of every command: help on one screen, ``--help-all``, and options from a file."""

import inspect
import json
import tomllib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer.core import TyperCommand

from privmix._registry import behind
from privmix.cli.flags import with_flags
from privmix.errors import InvalidInput, StorageError
from privmix.named import keys
from privmix.options import in_order, with_default

_NONE: Final = ("help_all", "config", "print_config", "help")


def read_toml(file: Path, context: Any) -> dict[str, Any]:
    """Return the values of a file, by the names of a command's parameters; InvalidInput if a key is no option."""
    place = f"--config {file}"
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StorageError(f"{place}: {error.strerror}") from None
    except ValueError as error:
        raise InvalidInput(place, "another text", f"TOML in UTF-8: {error}") from None
    known = {key: one for one in context.command.params for key in _keys(one)}
    found: dict[str, Any] = {}
    for key, value in content.items():
        option = known.get(key.replace("_", "-"))
        if option is None:
            near = get_close_matches(key.replace("_", "-"), known, 3)
            nearest = f"; nearest: {', '.join(near)}" if near else ""
            raise InvalidInput(place, key, f"options of {context.command_path}, without their dashes{nearest}")
        if option.name in found:
            raise InvalidInput(place, key, "each option once")
        found[option.name] = _value(option, value, f"{place}: {key}")
    return found


def as_toml(context: Any) -> str:
    """Return the options of a command that were given, as a file."""
    lines = [f"# {context.command_path} --config FILE"]
    for option in context.command.params:
        given = str(context.get_parameter_source(option.name)).rpartition(".")[2]
        keys = list(_keys(option))
        if keys and given in ("COMMANDLINE", "DEFAULT_MAP"):
            lines.append(f"{keys[0]} = {_written(context.params[option.name])}")
    return "\n".join(lines) + "\n"


def _keys(option: Any) -> Iterator[str]:
    if option.name in _NONE:
        return
    flags = [one for one in option.opts if one.startswith("--")]
    yield from (one.lstrip("-") for one in flags) if flags else (option.name.replace("_", "-"),)


def _value(option: Any, value: Any, place: str) -> Any:
    if getattr(option, "is_flag", False):
        if not isinstance(value, bool):
            raise InvalidInput(place, value, "true or false")
        return value
    several = option.multiple or option.nargs < 0
    if several != isinstance(value, list) and (several or any("," in str(one) for one in value)):
        raise InvalidInput(place, value, "a list" if several else "one text: a list cannot hold names with commas")
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, bool | list | dict):
            raise InvalidInput(place, one, "a text or a number")
    return [str(one) for one in value] if several else ",".join(map(str, value)) if isinstance(value, list) else value


def _written(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(map(_written, value))}]"
    # JSON's texts are TOML's, but for this character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


EVERY_COMMAND: Final = "Every command"
# A command with at most this number of options shows all of them on its screen.
_FEW: Final = 14
_WIDEST: Final = 26
# Least similarity of names that are alike; the dashes count.
_NEAR: Final = 0.7
# Replaces a dash while lines are broken: a flag or a name is not broken at its dashes.
_DASH: Final = "\u2011"


def _show_everything(context: typer.Context, asked: bool) -> None:
    if asked:
        context.meta["help_all"] = True
        typer.echo(context.get_help())
        raise typer.Exit


def _parameter(name: str, kind: Any, default: Any, *flags: str, **words: Any) -> inspect.Parameter:
    info = typer.Option(*flags, rich_help_panel=EVERY_COMMAND, **words)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[(kind, info)])


OPTIONS: Final = {
    one.name: one
    for one in (
        _parameter(
            "help_all", bool, False, "--help-all", help="Show all options.", callback=_show_everything, is_eager=True
        ),
        _parameter(
            "config", Path | None, None, metavar="FILE", help="TOML file with options; options given here override it."
        ),
        _parameter(
            "print_config", bool, False, "--print-config", help="Print the options given here as a file for --config."
        ),
    )
}
"""The options of every command."""


class Frame:
    """Over a command or a group of Typer: its help, its options from a file, and its usage errors."""

    name: Any
    help: Any
    params: Any
    callback: Any

    def get_params(self, context: Any) -> list[Any]:
        """All options; that of ``--help`` stands with the others that every command has."""
        found: list[Any] = super().get_params(context)  # type: ignore[misc]
        for one in found:
            if one.name == "help" and any(other.name == "help_all" for other in found):
                one.rich_help_panel = EVERY_COMMAND
        return found

    def collect_usage_pieces(self, context: Any) -> list[str]:
        """Arguments, then the options that are needed."""
        options = [one for one in self.params if one.param_type_name == "option"]
        others = [one for one in self.params if one not in options]
        pieces = [f"{_label(one)}{'...' * (one.nargs < 0)}" for one in others if one.required]
        pieces += [f"[{_label(one)}]" for one in others if not one.required]
        pieces += [_label(one) for one in options if one.required]
        group = getattr(self, "subcommand_metavar", None)
        return [*pieces, *(["[OPTIONS]"] if options else []), *([group] if group else [])]

    def format_help(self, context: Any, formatter: Any) -> None:
        """One screen; all of it with ``--help-all``."""
        everything = context.meta.get("help_all", False)
        paragraphs = inspect.cleandoc(self.help or "").split("\n\n")
        options = [one for one in self.get_params(context) if not one.hidden]
        own = [one for one in options if one.rich_help_panel != EVERY_COMMAND]
        common = [one for one in own if one.required or one.rich_help_panel is None or len(own) <= _FEW]
        formatter.write_usage(context.command_path, " ".join(self.collect_usage_pieces(context)).replace("-", _DASH))
        for text in paragraphs if everything else paragraphs[:1]:
            formatter.write_paragraph()
            formatter.write_text(text.replace("Examples:\n", "\b\nExamples:\n").replace("-", _DASH))
        panels: dict[str, list[tuple[str, str]]] = {"Required": [], "Options": []}
        for one in options if everything else common:
            panel = "Required" if one.required else one.rich_help_panel if everything else None
            panels.setdefault(panel or "Options", []).append((_label(one), _text(one, everything)))
        named = _named(self.callback) if everything else ()
        for parts in ([*panels.items(), *named], [*self._commands(context)]):
            # One column of texts for all options, and one for all commands.
            width = max((min(len(label), _WIDEST) for _, rows in parts for label, _ in rows), default=0)
            for title, rows in parts:
                if rows:
                    with formatter.section(title):
                        formatter.write_dl(
                            [(label.ljust(width), text.replace("-", _DASH)) for label, text in rows], _WIDEST
                        )
        if not everything and len(options) > len(own):
            left = len(own) - len(common)
            formatter.write_paragraph()
            formatter.write_text(f"{f'{left} more options' if left else 'Details'}: --help-all")
            if example := example_of(self):
                formatter.write_text(f"Example: {example}".replace("-", _DASH))
        formatter.buffer[:] = [part.replace(_DASH, "-") for part in formatter.buffer]

    def _commands(self, context: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
        found: dict[str, list[tuple[str, str]]] = {}
        for name in getattr(self, "list_commands", lambda _: ())(context):
            command = self.get_command(context, name)  # type: ignore[attr-defined]
            text = " ".join((command.help or "").split("\n\n")[0].split())
            found.setdefault(command.rich_help_panel or "Commands", []).append((name, text))
        yield from found.items()

    def parse_args(self, context: Any, args: list[str]) -> Any:
        """Return the options that are typed, and those of the file of ``--config``."""
        parse = super().parse_args  # type: ignore[misc]
        typed, _, _ = self.make_parser(context).parse_args(args=list(args))  # type: ignore[attr-defined]
        if context.resilient_parsing or "config" not in typed:
            return parse(context, args)
        file = Path(typed["config"])
        context.default_map = read_toml(file, context)
        for one in self.params:
            # The parser gives an empty value for several arguments, which no default replaces.
            if one.nargs < 0 and not typed.get(one.name) and one.name in context.default_map:
                args = [*args, *([] if "--" in args else ["--"]), *context.default_map[one.name]]
        try:
            return parse(context, args)
        except typer.TyperException as error:
            option = getattr(error, "param", None)
            if option is not None and str(context.get_parameter_source(option.name)).endswith("DEFAULT_MAP"):
                error.message = f"{error.message} (in {file})"
            raise

    def invoke(self, context: Any) -> Any:
        """Run the command, or show its options as a file."""
        if context.params.get("print_config"):
            typer.echo(as_toml(context), nl=False)
            return 0
        return super().invoke(context)  # type: ignore[misc]


class TerminalCommand(Frame, TyperCommand):
    """A command of privmix."""


def example_of(command: Any) -> str | None:
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        head, _, text = paragraph.partition(":")
        if head == "Examples":
            return text.strip().split("\n")[0]
        if head == "Example":
            return " ".join(text.split())
    return None


def usage_message(error: Any) -> str:
    """Return the text of a usage error, with the nearest option, or usage and an example."""
    context, lines = getattr(error, "ctx", None), [error.format_message()]
    if context is not None and hasattr(error, "option_name") and hasattr(error, "possibilities"):
        flags = [flag for one in context.command.get_params(context) for flag in [*one.opts, *one.secondary_opts]]
        near = get_close_matches(error.option_name, flags, 1, _NEAR)
        lines = [f"{error.message}{f'. Did you mean {near[0]}?' if near else ''}"]
    elif context is not None and type(error).__name__ == "MissingParameter":
        example = example_of(context.command)
        lines += [context.get_usage(), *([f"Example: {example}"] if example else [])]
    return "\n".join(lines)


def _named(callback: Any) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Keys of each option that is given as NAME:KEY=VALUE, under a heading for each name that takes any."""
    for item in in_order(callback.asked) if hasattr(callback, "asked") else ():
        if place := item.metadata.get("kinds"):
            kinds = behind(place)
            for name in kinds:
                flag = item.metadata.get("flag", item.name.replace("_", "-"))
                rows = [(one.name, with_default(one.metadata["help"], one.default)) for one in keys(kinds[name])]
                for key, _ in rows:
                    rows = [(one, text.replace(f"`{key}`", key)) for one, text in rows]
                rows = [(one, with_flags(text)) for one, text in rows]
                if rows:
                    yield f"--{flag} {f'{name}:' if name else ''}KEY=VALUE,...", rows


def _label(option: Any) -> str:
    if option.param_type_name == "argument":
        return str(option.metavar or option.name).upper()
    flags = ", ".join([*sorted(option.opts, key=len), *option.secondary_opts])
    return f"{flags} {option.metavar}" if option.metavar else flags


def _text(option: Any, everything: bool) -> str:
    """Return the help text of an option, with the names that it takes if ``everything``."""
    text = option.help or "" if everything else (option.help or "").partition(" Names: ")[0]
    shown = option.default if option.show_default and not getattr(option, "is_flag", False) else None
    return text if shown in (None, "") else f"{text} [default: {shown}]"
