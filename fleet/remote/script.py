"""One POSIX-sh script of framed sections: everything a probe asks, in one round trip.

Each section stands between two marker lines, so that login noise, a chatty tool or a broken-off answer spoils nothing
else. A marker is the byte 0x1e, `FLEET1`, the nonce of this sweep, and one of

    begin NAME            end NAME rc=N t=START,END      skip NAME            gave-up NAME            done

START and END are /proc/uptime readings. Written for dash, bash, BusyBox ash and shells of 2005: no arrays, no `local`,
no process substitution; `timeout`, `setsid` and `head -c` are used where they work and replaced where they do not.
The whole body is one function, so that a script that arrives cut off does nothing at all.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

MARK = "\x1eFLEET1"
SECTION_BYTES = 512 * 1024
GIVE_UP_S = 5  # after its limit, how long a section may take to die before the script goes on without it

_NAME = re.compile(r"[A-Za-z0-9_.:/-]{1,80}\Z")
_NONCE = re.compile(r"[0-9a-f]{8,64}\Z")


@dataclass(frozen=True)
class Section:
    """One command of the script.

    `timeout_s` = 0 runs it in the script's own shell without a limit: only for reading files of the kernel. It may use
    variables of an underscore and one letter; `_n` and `_j` are the script's.
    `needs` = a path, or a command's name, without which the section is skipped.
    `when` = the name of a shell variable that an earlier section has set to 1; else the section is not even named.
    """

    name: str
    command: str
    timeout_s: int = 20
    needs: str = ""
    when: str = ""


_HEAD = r"""
LC_ALL=C; LANG=C; LANGUAGE=; export LC_ALL LANG LANGUAGE
PATH="${PATH:-/usr/bin:/bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"; export PATH
unset ENV BASH_ENV CDPATH GREP_OPTIONS
umask 077
cd / || exit 1
_m() { printf '\036FLEET1 %s %s\n' "$_n" "$*"; }
_b() { _m begin "$1"; _t0=; read _t0 _j </proc/uptime; }
_e() { _t1=; read _t1 _j </proc/uptime; printf '\n'; _m end "$1" "rc=$2" "t=$_t0,$_t1"; }
_lim=
if timeout -k 1 5 sh -c : >/dev/null 2>&1 </dev/null; then _lim='timeout -k 2'
elif timeout 5 sh -c : >/dev/null 2>&1 </dev/null; then _lim=timeout; fi
_grp=; setsid sh -c : >/dev/null 2>&1 </dev/null && _grp=setsid
if [ "$(printf abc | head -c 2 2>/dev/null)" = ab ]; then _head() { head -c "$_cap"; }
else _head() { dd bs=1024 count=$((_cap / 1024)) 2>/dev/null; }; fi
# After $1 seconds do what is left of the arguments. TERM calls it off and takes its sleep along.
_later() {
  trap 'kill $!; exit 0' TERM
  sleep "$1" &
  wait $!
  shift
  eval "$*"
}
# $2 under a limit of $1 seconds.
_limit() {
  if [ -n "$_lim" ]; then $_lim "$1" sh -c "$2" 2>&1; return $?; fi
  $_grp sh -c "$2" </dev/null 2>&1 & _c=$!
  _p=$_c; [ -n "$_grp" ] && _p="-$_c"
  _later "$1" "kill -TERM $_p; sleep 2 & wait \$!; kill -KILL $_p" >/dev/null 2>&1 3>&- 4>&- & _k=$!
  wait $_c; _r=$?
  kill -TERM $_k 2>/dev/null
  return $_r
}
# The section $1 with command $3 under $2 seconds: its output, then its end marker.
_do() {
  _b "$1"
  _x=$( { { _limit "$2" "$3" </dev/null 3>&- 4>&-; echo $? >&3; } | _head >&4; } 3>&1 )
  _e "$1" "${_x:-?}"
}
# _do, given up when even KILL does not end it (a process stuck in the kernel), so that the others get their turn.
_run() {
  _g=
  ( trap - USR1; _do "$1" "$2" "$3" ) 4>&1 & _w=$!
  _later $(($2 + _give)) "kill -USR1 $$" >/dev/null 2>&1 & _d=$!
  wait $_w
  if [ -n "$_g" ]; then kill -KILL $_w $(_kids $_w); printf '\n'; _m gave-up "$1"; else kill -TERM $_d; fi 2>/dev/null
}
# All that came from process $1: what is left of a section must not write into the ones after it.
_kids() {
  for _k in $(cat "/proc/$1/task/$1/children"); do echo "$_k"; (_kids "$_k"); done 2>/dev/null
}
trap '_g=1' USR1
"""


def build(
    sections: Iterable[Section], nonce: str, *, section_bytes: int = SECTION_BYTES, give_up_s: int = GIVE_UP_S
) -> str:
    """The script that runs `sections` in order and marks them with `nonce` (hex digits). ValueError for bad names."""
    if not _NONCE.match(nonce):
        raise ValueError(f"a nonce is 8 to 64 hex digits, not {nonce!r}")
    body: list[str] = []
    seen: set[str] = set()
    for section in sections:
        if section.name in seen:
            raise ValueError(f"two sections are called {section.name!r}")
        seen.add(section.name)
        if not _NAME.match(section.name):
            raise ValueError(f"a section cannot be called {section.name!r}")
        body.append(_section(section))
    return (
        f"FLEET_NONCE={nonce}\nfleet_main() {{\n_n=$FLEET_NONCE; _cap={section_bytes // 1024 * 1024}; _give={give_up_s}"
        f"{_HEAD}{''.join(body)}_m done\n}}\nfleet_main\nexit 0\n"
    )


def nonce_of(script: str) -> str:
    """The nonce of a script made by `build`; "" of any other."""
    match = re.match(r"FLEET_NONCE=([0-9a-f]+)\n", script)
    return match[1] if match else ""


def _section(section: Section) -> str:
    name = section.name
    if section.timeout_s > 0:
        text = f"_run {name} {section.timeout_s} {shlex.quote(section.command)}\n"
    else:
        text = f"_b {name}\n{{ {section.command}\n}} </dev/null; _e {name} $?\n"
    if section.needs:
        path = shlex.quote(section.needs)
        test = f"[ -e {path} ]" if "/" in section.needs else f"command -v {path} >/dev/null"
        text = f"if {test}; then\n{text}else _m skip {name}; fi\n"
    if section.when:
        text = f'if [ "${{{section.when}:-}}" = 1 ]; then\n{text}fi\n'
    return text
