"""`rayfish config`: what an experiment resolves to, whether it can run, and which keys there are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rayfish.cli import options
from rayfish.cli.complete import complete_sections
from rayfish.errors import MOST_SHOWN, ConfigError, RayfishError, did_you_mean

if TYPE_CHECKING:
    from rayfish.errors import Problem
    from rayfish.experiment import Experiment
    from rayfish.legacy.translate import Entry, Translation
    from rayfish.terminal import Console

_WIDE = 110
_FEW = 3
_LONGEST_VALUE = 40

app = typer.Typer(no_args_is_help=True, help="Look at an experiment: its values, its problems, all its keys.")


@app.command()
def show(
    words: options.Words = None,
    file: options.File = None,
    config_name: options.ConfigName = "config",
    config_dir: options.ConfigDir = None,
    as_yaml: Annotated[bool, typer.Option("--yaml", help="Plain YAML, to keep or to pipe.")] = False,
) -> None:
    """Show the resolved experiment, each value with the file and line, or the override, it came from."""
    experiment = _compose(words, file, config_name, config_dir)
    if as_yaml:
        typer.echo(experiment.to_yaml(), nl=False)
        return
    console = _console()
    for name, values in experiment.written().items():
        if values:
            _print_section(console, experiment, name, values)
    _print_notes(console, experiment)


@app.command()
def check(
    words: options.Words = None,
    file: options.File = None,
    config_name: options.ConfigName = "config",
    config_dir: options.ConfigDir = None,
    fit: options.Fit = False,
    ray_num_cpus: options.RayCpus = None,
    ray_num_gpus: options.RayGpus = None,
) -> None:
    """Check everything that can be known without computing: keys, values, environment, model, resources."""
    experiment = _compose(words, file, config_name, config_dir)
    from rayfish.run import preflight, resources
    from rayfish.run.engine import RayOptions

    ray = RayOptions(num_cpus=ray_num_cpus, num_gpus=ray_num_gpus)
    if fit or experiment.fit:  # as `rayfish train` does
        with suppress(ConfigError):  # whose problems are found below, with all others
            experiment, changes = resources.fit(experiment, ray)
            experiment = replace(experiment, notes=(*experiment.notes, *changes))
    problems, info = preflight.inspect(experiment, ray)
    console = _console()
    _print_notes(console, experiment, preflight.remarks(experiment, None if problems else info))
    if problems:
        _print_problems(console, problems)
        raise typer.Exit(1)
    _print_fine(console, experiment, info)


@app.command("list")
def list_presets(config_dir: options.ConfigDir = None) -> None:
    """List the presets and main configs, the shipped ones and those of --config-dir."""
    from rich.markup import escape
    from rich.table import Table

    from rayfish.experiment.compose import catalogue
    from rayfish.experiment.files import SHIPPED

    console = _console()
    for title, entries in catalogue(config_dir).items():
        console.print(f"[bold]{title}[/]")
        table = Table(box=None, show_header=False)
        for name, doc, path in entries:
            own = "" if path.startswith(SHIPPED) else f" [green]({escape(path)})[/]"
            table.add_row(f"[cyan]{escape(name)}[/]", escape(doc) + own)
        console.print(table)
        console.print()
    console.print("[dim]rayfish train NAME, rayfish config show NAME; main configs with -cn NAME[/]")


@app.command()
def keys(
    section: Annotated[
        str | None,
        typer.Argument(help="A section, or part of a key to look for.", autocompletion=complete_sections),
    ] = None,
    algo: Annotated[str | None, typer.Option("--algo", help="Training keys of this algorithm.")] = None,
) -> None:
    """Explain the keys of a section, or all keys whose name contains a word."""
    from rayfish.algorithm import reference
    from rayfish.experiment.sections import SECTIONS

    console = _console()
    names = reference.section_names()
    algo = _algorithm(algo)
    if section is None:
        _print_sections(console)
    elif section in names:
        _print_keys(console, section, reference.rows(section, algo))
        if not reference.rows(section, algo):
            doc = SECTIONS[section].doc if section in SECTIONS else ""
            console.print(f"  {doc} It has no keys of Rayfish's.", soft_wrap=True)
        if section == "training" and algo is None:
            console.print("[dim]Shared by all algorithms; --algo PPO shows one with its own keys.[/]")
    else:
        found = {n: [r for r in reference.all_rows(n, algo) if section in f"{n}.{r.key}"] for n in names}
        found = {name: hits for name, hits in found.items() if hits}
        if not found:
            known = [*names, *(row.key for name in names for row in reference.all_rows(name, algo))]
            close = did_you_mean(section, known)
            hint = f"rayfish config keys {close[0]}" if close else "rayfish config keys"
            raise RayfishError(f"no key contains {section!r}", hint)
        for name, hits in found.items():
            _print_keys(console, name, hits)


@app.command()
def migrate(
    file: Annotated[str, typer.Argument(metavar="FILE.yaml", help="An old RLlib experiment file.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="Folder for the new files; else migrated/ beside FILE.")
    ] = None,
    closest: Annotated[
        bool, typer.Option("--closest", help="Take the closest algorithm where RLlib has dropped one.")
    ] = False,
) -> None:
    """Write an old RLlib file (Ray 1.9 to 2.9) as today's experiment file, and say what became of each key.

    Every key is translated, safely ignored with the reason, or refused with what to do instead; the exit
    code is 0 unless something is refused.
    """
    from rayfish.legacy.migration import migrate as write

    found = write(file, out, closest=closest)
    for translation, path in found:
        _print_migration(_console(), translation, path)
    if any(translation.fate == "refused" for translation, _ in found):
        raise typer.Exit(1)


def _compose(
    words: list[str] | None, file: str | None, config_name: str, config_dir: Path | None
) -> Experiment:
    from rayfish.experiment import Experiment
    from rayfish.experiment.overrides import split_words
    from rayfish.run.choose import with_fitting_algorithm

    name, overrides = split_words(words or [], config_dir)
    found = Experiment.compose(chosen(file, name), overrides, config_name=config_name, config_dir=config_dir)
    return with_fitting_algorithm(found)


def chosen(file: str | None, name: str | None) -> str | None:
    """The experiment that -f or the first word names; what -f names is a path, whatever it looks like."""
    if file is None:
        return name
    if name is not None:
        raise RayfishError(f"both -f {file} and the experiment {name} are given", "name one of them")
    return file if file.startswith(("/", "./", "../", "~")) else f"./{file}"


def _console() -> Console:
    from rayfish.terminal import Console

    return Console(highlight=False)


def _algorithm(name: str | None) -> str | None:
    from rayfish.experiment.sections import ALGORITHMS, spelled

    if name is None:
        return None
    known = spelled(name, ALGORITHMS)
    if known is None:
        close = did_you_mean(name.upper(), ALGORITHMS)
        hint = f"did you mean --algo {close[0]}? " if close else ""
        raise RayfishError(f"there is no algorithm {name!r}", f"{hint}there are: {', '.join(ALGORITHMS)}")
    return known


def _print_section(console: Console, experiment: Experiment, name: str, values: Any) -> None:
    """One section: key, value, origin; what the user wrote stands out from what is shipped."""
    from rich.text import Text

    from rayfish.experiment import tree
    from rayfish.experiment.files import SHIPPED

    narrow = console.is_terminal and console.width < _WIDE
    key_width, value_width = (34, 14) if narrow else (38, 20)
    lines = [Text(name, style="bold")]
    for key, value in tree.leaves(values) if isinstance(values, dict) else [("", values)]:
        origin = experiment.origin(f"{name}.{key}")
        preset = "/experiment/" in origin
        ours = origin.startswith(SHIPPED) and not preset
        style = "dim" if ours or not origin else "cyan" if preset else "bold green"
        line = Text(f"  {key:<{key_width}} ").append(f"{_text(value):<{value_width}} ", style=style)
        if narrow:
            # The end of an origin (file and line) says more than its beginning.
            origin = origin.removeprefix("rayfish/")
            room = max(12, console.width - line.cell_len)
            origin = origin if len(origin) <= room else f"…{origin[-(room - 1) :]}"
        lines.append(line.append(origin, style="dim"))
    console.print(Text("\n").join(lines), soft_wrap=True)  # at once: a print takes as long as fifty lines


def _text(value: Any) -> str:
    import json

    if isinstance(value, str):
        return value
    return json.dumps(value, default=str)


def _print_notes(console: Console, experiment: Experiment, more: Sequence[str] = ()) -> None:
    from rich.markup import escape

    for note in (*experiment.notes, *more):
        console.print(f"[yellow]note:[/] {escape(note)}", soft_wrap=True)


def _print_problems(console: Console, problems: list[Problem]) -> None:
    from rich.markup import escape

    count = len(problems)
    console.print(f"[bold red]{count:,} problem{'s' if count > 1 else ''}[/]")
    for problem in problems[:MOST_SHOWN]:
        console.print(f"\n[red]✗[/] [bold]{escape(problem.key)}[/]: {escape(problem.what)}", soft_wrap=True)
        if problem.where:
            console.print(f"  [dim]written in: {escape(problem.where)}[/]", soft_wrap=True)
        if problem.hint:
            console.print(f"  [cyan]next step: {escape(problem.hint)}[/]", soft_wrap=True)
    if count > MOST_SHOWN:
        console.print(f"\nand {count - MOST_SHOWN:,} more")


def _print_fine(console: Console, experiment: Experiment, info: Any) -> None:
    from rich.markup import escape

    from rayfish.algorithm.keys import remarks
    from rayfish.envs.env_kind import in_short

    count = len(experiment.origins)
    algo, env = experiment.algo.name, experiment.environment.env or experiment.env
    console.print(f"[bold green]✓ fine[/]: {algo} on {escape(str(env))}, {count} values", soft_wrap=True)
    if info is not None:
        agents = ", ".join(str(agent) for agent in info.agents) if info.kind == "multi" else ""
        agent = next(iter(info.observation_spaces))
        console.print(
            f"  [dim]observation {escape(in_short(info.observation_spaces[agent]))}[/]", soft_wrap=True
        )
        console.print(f"  [dim]action {escape(in_short(info.action_spaces[agent]))}[/]", soft_wrap=True)
        if agents:
            console.print(f"  [dim]agents {escape(agents)}[/]", soft_wrap=True)
    for remark in remarks(experiment, info):
        console.print(f"  {escape(remark)}", soft_wrap=True)
    console.print("  [dim]checked: keys, types, contradictions, environment, spaces, model, resources[/]")


def _print_sections(console: Console) -> None:
    from rich.table import Table

    from rayfish.algorithm import reference
    from rayfish.experiment.sections import METHODS, SECTIONS

    table = Table("section", "keys", "what it is about", box=None, pad_edge=False)
    for name in reference.section_names():
        section = SECTIONS.get(name)
        doc = section.doc.partition(". ")[0].rstrip(".") if section else "The network"
        feeds = f" [dim]AlgorithmConfig.{METHODS[name]}()[/]" if name in METHODS else ""
        table.add_row(f"[cyan]{name}[/]", str(len(reference.rows(name)) or "any"), f"{doc}.{feeds}")
    console.print(table)
    console.print("\n[dim]rayfish config keys SECTION, rayfish config keys training --algo PPO[/]")


def _print_keys(console: Console, section: str, rows: list[Any]) -> None:
    """Each key on a line of its own with what it takes, its meaning indented below."""
    from rich.padding import Padding
    from rich.text import Text

    console.print(Text(section, style="bold"))
    for row in rows:
        line = Text(f"  {section}.").append(row.key, style="bold cyan" if row.is_own else "cyan")
        line.append(f"  {row.takes}", style="dim").append("  default ", style="dim").append(row.default)
        console.print(line)
        doc = row.doc if len(rows) <= _FEW else _first_sentences(row.doc)
        if doc:
            console.print(Padding(Text(doc), (0, 0, 0, 6)))


def _first_sentences(doc: str) -> str:
    cut = doc.find(". ", 60)
    return doc[: cut + 1] if cut > 0 else doc


def _print_migration(console: Console, translation: Translation, path: Path) -> None:
    """The four groups of keys, then where the new file is and what to do with it."""
    from rich.markup import escape

    from rayfish.experiment.files import show as shown

    translated = translation.of("translated")
    groups: tuple[tuple[str, str, Sequence[Entry]], ...] = (
        ("Translated", "green", [entry for entry in translated if not entry.outcome.changed]),
        ("Changed in meaning", "yellow", [entry for entry in translated if entry.outcome.changed]),
        ("Dropped: no meaning any more", "dim", translation.of("ignored")),
        ("To decide", "bold red", translation.of("refused")),
    )
    name, file = escape(str(translation.experiment.name)), escape(str(translation.experiment.file))
    console.print(f"[bold]{name}[/] [dim]({file})[/]")
    for title, style, entries in groups:
        if entries:
            console.print(_migration_table(title, style, entries))
    console.print(f"written to {escape(shown(path))}", soft_wrap=True, highlight=False)
    if translation.fate == "refused":
        console.print("[red]settle what is to decide in the old or the new file, then[/] ", end="")
    console.print(f"[cyan]rayfish train -f {escape(shown(path))}[/]\n", soft_wrap=True, highlight=False)


def _migration_table(title: str, style: str, entries: Sequence[Entry]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=f"[{style}]{title}[/]", title_justify="left", box=None, padding=(0, 2, 0, 0))
    is_new = any(entry.outcome.values for entry in entries)
    said = any(entry.outcome.why for entry in entries)
    table.add_column("old", overflow="fold")
    if is_new:
        table.add_column("today", style="cyan", overflow="fold")
    if said:
        table.add_column("remark" if is_new else "why", overflow="fold")
    for entry in entries:
        written = not entry.old.startswith("(")
        old = f"{entry.old.removeprefix('config.')}: {_short(entry.value)}" if written else entry.old
        new = [escape(_today(entry))] if is_new else []
        table.add_row(escape(old), *new, *([escape(entry.outcome.why)] if said else []))
    return table


def _today(entry: Entry) -> str:
    return "\n".join(f"{key}: {_short(value)}" for key, value in entry.outcome.values.items())


def _short(value: Any) -> str:
    text = {True: "true", False: "false", None: "null"}.get(value) if isinstance(value, bool | None) else None
    text = text or str(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 3]}..."
