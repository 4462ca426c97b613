"""The pages for people are true where a machine can tell: commands parse, links and names resolve, languages agree."""

from __future__ import annotations

import re
import shlex
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from fleet.cli.main import fleet
from fleet.config import Settings
from fleet.core import errors

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
OPERATIONS = ("docs/operations.md", "docs/operations.zh-CN.md")
PAGES = (*READMES, *OPERATIONS, "docs/tour.md")
LINKED = (*PAGES, "CONTRIBUTING.md", "playbooks/README.md", "compat_matrix/README.md", "fleet/lab/README.md")


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def blocks(text: str) -> list[str]:
    """The content of fenced blocks."""
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def prose(text: str) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```\w*\n.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def headings(text: str) -> list[str]:
    """The levels of the headings, in order."""
    return re.findall(r"^(#+) ", prose(text), re.MULTILINE)


def commands(text: str) -> Iterator[str]:
    """Each `fleet …` command of a page: lines of blocks, with or without a prompt, and code in the prose."""
    for block in blocks(text):
        for line in block.splitlines():
            found = re.match(r"(?:\$ |[\w*/ -]+ /\S+/|ExecStart=/\S+/|)(fleet [^>#|]*)", line)
            if found:
                yield found[1].strip()
    for code in re.findall(r"`(?:[^`]*/)?(fleet [^`]+)`", prose(text).replace("\n", " ")):
        yield re.sub(r"\s+(?:[>|]|2>).*", "", code) if "'" not in code else code


def parsed(command: str) -> None:
    """Parse a command line with the real tree and run nothing. Raises click's own errors."""
    words = shlex.split(command)
    context = fleet.make_context("fleet", words[1:] or ["--help"], resilient_parsing=True)
    group: click.Command = fleet
    rest = [*getattr(context, "_protected_args", ()), *context.args]  # what the group left for its command
    while isinstance(group, click.Group):
        if not rest:
            return  # `fleet node`: the noun itself is named
        found = group.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"no command {rest[0]!r}", context)
        if isinstance(found, click.Group):
            context, group, rest = click.Context(found, context, rest[0]), found, rest[1:]
            continue
        given = set(rest[1:])
        required = any(p.required and isinstance(p, click.Argument) for p in found.params)
        # `fleet evidence show` in a sentence names the command; with words after it, all must fit.
        found.make_context(rest[0], rest[1:], parent=context, resilient_parsing=required and not given)
        return


@pytest.mark.parametrize("page", PAGES)
def test_commands_parse(page: str) -> None:
    found = list(commands(text_of(page)))
    assert len(found) >= (1 if "tour" in page else 20)
    wrong = []
    for command in found:
        try:
            parsed(command)
        except (click.ClickException, ValueError) as error:
            wrong.append(f"{command}: {error.format_message() if isinstance(error, click.ClickException) else error}")
    assert not wrong


@pytest.mark.parametrize("command", ["fleet node wyh gpu1", "fleet plan gpu1 --strateggy newest", "fleet lab up now"])
def test_a_wrong_command_is_noticed(command: str) -> None:
    with pytest.raises(click.ClickException):
        parsed(command)


@pytest.mark.parametrize("page", READMES)
def test_quick_start_is_two_commands(page: str) -> None:
    first = blocks(text_of(page))[0]
    assert first.splitlines() == ["scripts/demo", "scripts/test"]
    assert all((ROOT / script).is_file() for script in first.split())


@pytest.mark.parametrize(("english", "chinese"), [READMES, OPERATIONS])
def test_languages_agree(english: str, chinese: str) -> None:
    one, other = text_of(english), text_of(chinese)
    assert headings(one) == headings(other)
    assert one.count("\n|") == other.count("\n|"), "tables have other rows"
    assert list(map(code, blocks(one))) == list(map(code, blocks(other)))
    assert sorted(set(commands(one))) == sorted(set(commands(other)))


def code(block: str) -> list[str]:
    """The lines of a block without comments and descriptions, which may be translated."""
    return [line for line in block.splitlines() if not line.startswith(("#", "Description="))]


@pytest.mark.parametrize("page", LINKED)
def test_links_resolve(page: str) -> None:
    targets = re.findall(r"\]\(([^)]+)\)", prose(text_of(page)))
    broken = [t for t in targets if "://" not in t and not (ROOT / page).parent.joinpath(t.split("#")[0]).exists()]
    assert not broken


@pytest.mark.parametrize("page", PAGES)
def test_no_path_of_one_machine(page: str) -> None:
    ours = re.compile(r"(?<![\w.])/(?:root|home|work|tmp|Users|mnt)/")
    assert not [line for line in text_of(page).splitlines() if ours.search(line)]


@pytest.mark.parametrize("page", PAGES)
def test_lines_fit_a_terminal(page: str) -> None:
    def cells(line: str) -> int:
        return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line)

    assert not [line for line in text_of(page).splitlines() if not line.startswith("|") and cells(line) > 120]


@pytest.mark.parametrize("page", OPERATIONS)
def test_every_setting_and_exit_code_is_told(page: str) -> None:
    rows = [line.split("|")[1] for line in text_of(page).splitlines() if line.startswith("|")]
    named = {word for row in rows for word in re.findall(r"`(\w+)`", row)}
    assert set(Settings.__dataclass_fields__) <= named
    assert {str(c) for c in errors.PRECEDENCE} <= {row.strip() for row in rows}


def sections(text: str) -> list[str]:
    return re.split(r"^## ", text, flags=re.MULTILINE)[1:]


def test_the_tour_names_what_is_there() -> None:
    text = text_of("docs/tour.md")
    assert len(text.splitlines()) < 150
    lost = []
    for section in sections(text):
        files = [name for name in re.findall(r"`([\w./-]+/[\w.-]+)`", section) if "*" not in name]
        lost += [name for name in files if not (ROOT / name).exists()]
        content = "\n".join((ROOT / name).read_text() for name in files if (ROOT / name).is_file())
        for name in re.findall(r"`(\w+)\(\)`|`([A-Z][a-z]+[A-Za-z]*)`", section):
            word = name[0] or name[1]
            if not re.search(rf"^\s*(?:def |class )?{word}(?:\(|:)", content, re.MULTILINE):
                lost.append(f"{word} in {files}")
    assert not lost
