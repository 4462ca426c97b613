"""The one door to nodes: transports that run POSIX-sh scripts, a bounded sweep, and the framed script of a probe."""

from fleet.remote.answer import Answer, Phase, Transport, Trouble
from fleet.remote.frame import Frame, Frames, parse
from fleet.remote.hostkey import fingerprint
from fleet.remote.local import Local
from fleet.remote.recording import Record, Replay
from fleet.remote.script import Section, build
from fleet.remote.ssh import Jump, Limits, Ssh, fetch_host_key
from fleet.remote.sweep import sweep

__all__ = [
    "Answer", "Frame", "Frames", "Jump", "Limits", "Local", "Phase", "Record", "Replay", "Section", "Ssh", "Transport",
    "Trouble", "build", "fetch_host_key", "fingerprint", "parse", "sweep",
]  # fmt: skip
