"""Jobs as they are written: files of Isaac Lab's task_runner, words of its wrap_resources, our own form.

concurrent: false          # true: all start together, or none
tasks:
  - name: small
    command: python train.py --size 1     # or py_args: train.py --size 1
    num_cpus: 2
    num_gpus: 0.5
    memory: 10*1024**3
    node: {specific: hostname, hostname: worker-3}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from rayfish.errors import ConfigError, Problem, RayfishError
from rayfish.experiment.sections import Field
from rayfish.files import parse_json
from rayfish.run import signing
from rayfish.run.directory import safe_name
from rayfish.sweep.amounts import held
from rayfish.sweep.program.settings import words_in
from rayfish.sweep.settings import checked
from rayfish.sweep.task import Resources

KEPT = "jobs.json"
"""The list itself, in the folder of its results."""

FIELDS: dict[str, Field] = {
    "tasks": Field("list", None, "The jobs."),
    "concurrent": Field(
        "bool", False, "All start at once, when there is room for all; else each as soon as it fits."
    ),
    "pip": Field("list | null", None, "Packages that Ray installs for the jobs; needs a package index."),
    "py_modules": Field("list | null", None, "Folders of Python packages that the jobs can import."),
}
TASK_FIELDS: dict[str, Field] = {
    "name": Field("str", None, "Its name, in the output and for its folder."),
    "command": Field("str | list", None, "What is run; `python` is the Python that Rayfish runs with."),
    "py_args": Field("str | list", None, "The same without the word python: train.py --size 1."),
    "num_cpus": Field("float | str", 1, "CPUs it holds; a number, or arithmetic (2*2)."),
    "num_gpus": Field("float | str", 0, "GPUs it holds; may be a fraction."),
    "memory": Field("float | str | null", 0, "Memory it holds; a number, or 10*1024**3.", "bytes"),
    "node": Field("dict | null", None, "Where it has to run: specific (any, hostname, node_id) and which."),
}
NODE_FIELDS: dict[str, Field] = {
    "specific": Field("str | null", "any", "What is given.", choices=("any", "hostname", "node_id")),
    "hostname": Field("str | null", None, "A machine, by its name or address."),
    "node_id": Field("str | null", None, "A machine, by Ray's id of it."),
}


@dataclass(frozen=True)
class Job:
    """One command and what it holds.

    :param name: unique in its list; also its folder's name
    :param node: the machine it must run on, by its name, address or Ray's id; "" for any
    """

    name: str
    command: tuple[str, ...]
    cpus: float = 1.0
    gpus: float = 0.0
    memory: float = 0.0
    node: str = ""

    @property
    def resources(self) -> Resources:
        """What it holds, in the words of a sweep."""
        return Resources(self.cpus, self.gpus, memory=self.memory)


@dataclass(frozen=True)
class JobList:
    """Jobs that belong together.

    :param together: all start at once or none does
    :param modules: folders of packages that the jobs can import
    :param start: the folder they are started in; "" for the current one
    :param share: each job gets this part of a machine: 2 for half of it; 0: what it asks for itself
    :param folder: where an earlier call put its results; None for a new list
    """

    jobs: tuple[Job, ...]
    together: bool = False
    pip: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    share: int = 0
    start: str = ""
    folder: Path | None = field(default=None, compare=False)

    @property
    def pythonpath(self) -> list[str]:
        """Where Python has to look for `modules`: in the folder around a package, or in the folder itself."""
        found = []
        for name in self.modules:
            path = Path(name).expanduser().absolute()
            found += [str(path.parent)] if (path / "__init__.py").is_file() or path.is_file() else [str(path)]
        return list(dict.fromkeys(found))

    def keep(self, folder: Path) -> None:
        """Writes the list into the folder of its results, with the folder it is started in."""
        values = {key: value for key, value in asdict(self).items() if key != "folder"}
        values["start"] = self.start or str(Path.cwd())
        (folder / KEPT).write_text(signing.sealed_json(KEPT, values), encoding="utf-8")


def read_jobs(source: str | Path | Mapping[str, Any]) -> JobList:
    """The jobs of a YAML file, of its content, or of the folder of an earlier call's results.

    :raises ConfigError: with everything that is wrong
    """
    if isinstance(source, Mapping):
        return _read(source, "tasks")
    path = Path(source)
    if (path / KEPT).is_file():
        kept = parse_json((path / KEPT).read_text(encoding="utf-8"))
        kept.pop(signing.SEAL, None)
        jobs = tuple(Job(**{**job, "command": tuple(job["command"])}) for job in kept.pop("jobs"))
        kept |= {key: tuple(kept[key]) for key in ("pip", "modules")}
        return JobList(jobs, folder=path.absolute(), **kept)
    import yaml

    from rayfish.experiment.files import yaml_problem
    from rayfish.experiment.yaml_reader import safe_load

    try:
        text = path.read_text(encoding="utf-8")
        values = safe_load(text)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror}"
        raise RayfishError(what, "give the path of a YAML file") from None
    except UnicodeDecodeError:
        raise RayfishError(f"{path} is not UTF-8 text", "save it as UTF-8 in your editor") from None
    except yaml.YAMLError as error:
        raise ConfigError([yaml_problem(path, error, text)]) from None
    if not isinstance(values, Mapping):
        what = f"is {type(values).__name__}, not keys with values"
        raise ConfigError([Problem("tasks", what, "a list of jobs begins with `tasks:`", str(path))])
    return _read(values, str(path))


def from_words(
    words: Sequence[str],
    num_workers: int | None = None,
    cpu_per_worker: float | Sequence[float] | None = None,
    gpu_per_worker: float | Sequence[float] | None = None,
    ram_gb_per_worker: float | Sequence[float] | None = None,
) -> JobList:
    """The jobs of a command line, with the word `+` between them; each is one quoted text, or its words.

    :param num_workers: each machine is shared by so many jobs; without anything given, one has it alone
    :param cpu_per_worker: of each job; or a list, one number per job
    :raises ConfigError: with everything that is wrong
    """
    commands = commands_in(words)
    problems: list[Problem] = []
    if any(not command for command in commands):
        hint = '--sub-jobs "python a.py" + "python b.py"'
        problems.append(Problem("sub_jobs", "there is no command before or after a +", hint))
    each = {"cpu": cpu_per_worker, "gpu": gpu_per_worker, "ram_gb": ram_gb_per_worker}
    given = [name for name, value in each.items() if value is not None]
    if num_workers is not None and given:
        what = f"num_workers={num_workers} divides a machine, {given[0]}_per_worker says the parts"
        problems.append(Problem("num_workers", what, "give one of the two"))
    if num_workers is not None and num_workers < 1:
        problems.append(Problem("num_workers", f"is {num_workers}", "give 1 or more"))
    parts = {name: _each(name, value, len(commands), problems) for name, value in each.items()}
    jobs = []
    for number, command in enumerate(commands, 1):
        text = command[0] if len(command) == 1 else command
        split = _split(text, f"job {number}", problems, "") if command else ()
        cpus, gpus, memory = (parts[name][number - 1] for name in ("cpu", "gpu", "ram_gb"))
        jobs.append(
            Job(f"job-{number}", split, 1.0 if cpus is None else cpus, gpus or 0.0, (memory or 0.0) * 1024**3)
        )
    if problems:
        raise ConfigError(problems)
    return JobList(tuple(jobs), share=0 if given else num_workers or 1)


def commands_in(words: Iterable[str]) -> list[list[str]]:
    """The words of each command, with the word `+` between them."""
    commands: list[list[str]] = [[]]
    for word in words:
        commands.append([]) if word == "+" else commands[-1].append(word)
    return commands


def _read(values: Mapping[str, Any], where: str) -> JobList:
    problems = checked(values, FIELDS, "", where)
    tasks = values.get("tasks")
    if not isinstance(tasks, list) or not tasks:
        if not any(problem.key == "tasks" for problem in problems):
            problems.append(Problem("tasks", "there is no job", "list at least one below `tasks:`", where))
        tasks = []
    jobs = [job for n, task in enumerate(tasks) if (job := _job(task, n, problems, where)) is not None]
    for name in values.get("py_modules") or ():
        if not Path(str(name)).expanduser().exists():
            hint = f"looked in {Path.cwd()}"
            problems.append(Problem("py_modules", f"{name} does not exist", hint, where))
    if problems:
        raise ConfigError(problems)
    return JobList(
        tuple(_unique(jobs)),
        together=bool(values.get("concurrent")),
        pip=tuple(map(str, values.get("pip") or ())),
        modules=tuple(
            str(Path(str(name)).expanduser().absolute()) for name in values.get("py_modules") or ()
        ),
    )


def _job(task: Any, number: int, problems: list[Problem], where: str) -> Job | None:
    key = f"tasks[{number}]"
    if not isinstance(task, Mapping):
        problems.append(Problem(key, f"is {task!r}", "give a job as name:, command: and so on", where))
        return None
    found = checked(task, TASK_FIELDS, key, where)
    problems += found
    if any(problem.key in (f"{key}.command", f"{key}.py_args") for problem in found):
        return None
    if ("command" in task) == ("py_args" in task):
        what = "has both command and py_args" if "command" in task else "has no command"
        hint = "command: python train.py --size 1, or py_args: train.py --size 1"
        problems.append(Problem(key, what, hint, where))
        return None
    python = () if "command" in task else ("python",)
    words = _split(task.get("command" if "command" in task else "py_args"), key, problems, where)
    amounts = {}
    for name in ("num_cpus", "num_gpus", "memory"):
        given = task.get(name)
        default = float(TASK_FIELDS[name].default)
        what = "gpu" if name == "num_gpus" else name
        amounts[name] = default if given is None else held(given, what, f"{key}.{name}", problems, where)
    node = _node(task.get("node") or {}, f"{key}.node", problems, where)
    label = str(task.get("name") or f"job-{number + 1}")
    return Job(label, (*python, *words), amounts["num_cpus"], amounts["num_gpus"], amounts["memory"], node)


def _node(node: Any, key: str, problems: list[Problem], where: str) -> str:
    if not isinstance(node, Mapping):
        return ""
    problems += checked(node, NODE_FIELDS, key, where)
    kind = str(node.get("specific") or "any").lower()
    if kind == "any" or kind not in ("hostname", "node_id"):
        return ""
    if not node.get(kind):
        problems.append(Problem(key, f"says specific: {kind}, but not which", f"give {kind} too", where))
    return str(node.get(kind) or "")


def _split(command: Any, key: str, problems: list[Problem], where: str) -> tuple[str, ...]:
    before = len(problems)
    words = words_in(command, key, problems, where)
    if len(problems) == before and not (words and words[0].strip()):
        problems.append(Problem(key, "its command is empty", "write what to run", where))
    return tuple(words)


def _each(name: str, value: Any, count: int, problems: list[Problem]) -> list[float | None]:
    """One number per job."""
    if value is None:
        return [None] * count
    key = f"{name}_per_worker"
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if len(values) not in (1, count):
        what = f"{len(values)} values for {count} jobs"
        problems.append(Problem(key, what, "give one for all, or one per job"))
        return [None] * count
    found: list[float | None] = [held(number, name, key, problems) for number in values]
    return found if len(found) == count else found * count


def _unique(jobs: Sequence[Job]) -> list[Job]:
    """Jobs of the same name get numbers, and all of them names that a folder can have."""
    found: list[Job] = []
    for job in jobs:
        name, number = safe_name(job.name, "job"), 2
        while any(other.name == name for other in found):
            name, number = f"{safe_name(job.name, 'job')}-{number}", number + 1
        found.append(replace(job, name=name))
    return found
