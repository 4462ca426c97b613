"""Which program a command line runs, whatever is written before it."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

PROGRAMS = frozenset(
    {
        "nvidia-smi", "dcgmi", "nv-fabricmanager", "nvfwupd", "nvbandwidth", "gpu_burn", "gpu-burn", "nvidia-ctk",
        "nvidia-container-cli", "nvidia-installer", "nvidia-imex", "nvcc", "lspci", "lsmod", "modinfo", "modprobe",
        "rmmod", "insmod", "dmesg", "journalctl", "dkms", "apt-get", "apt", "dpkg", "dpkg-query", "rpm", "dnf", "yum",
        "nv-hostengine", "bandwidthTest", "ofed_info", "cat", "tail", "head", "grep", "zgrep", "zcat", "ls",
    }
)  # fmt: skip
_COLLECTIVE = re.compile(r"(?:all_reduce|all_gather|reduce_scatter|broadcast|alltoall|sendrecv|reduce)_perf(?:_mpi)?$")


@dataclass(frozen=True)
class Command:
    """A command line taken apart: the program's base name ("" = none that we know) and what follows it."""

    text: str
    program: str
    args: tuple[str, ...]

    def has(self, *flags: str) -> bool:
        """One of these words, or `--word=value`, is among the arguments."""
        return any(arg in flags or arg.split("=", 1)[0] in flags for arg in self.args)

    def value(self, flag: str) -> str:
        """The text after `flag=` or in the word after `flag`; "" when it is not there."""
        for i, arg in enumerate(self.args):
            if arg.startswith(flag + "="):
                return arg[len(flag) + 1 :]
            if arg == flag and i + 1 < len(self.args):
                return self.args[i + 1]
        return ""


def parse(text: str) -> Command:
    """Take a command line apart; sudo, env, timeout, `sh -c`, paths and settings before the program are passed over."""
    for words in _words(text[:4000]):
        for i, word in enumerate(words):
            base = word.rsplit("/", 1)[-1]
            if base in PROGRAMS or _COLLECTIVE.match(base) or base.startswith("NVIDIA-Linux-"):
                return Command(text, base, tuple(words[i + 1 :]))
    return Command(text, "", ())


def _words(text: str) -> list[list[str]]:
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    inner = [word for word in words if " " in word]  # the script of `sh -c`
    first: list[str] = []
    for word in words:
        if word in ("|", "||", "&&", ";") and first:
            break
        first.append(word)
    return [first, words, *[word.split() for word in inner]]
