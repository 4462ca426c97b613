"""Clean-up that every vendor's output needs before it is read."""

from __future__ import annotations

import re

MAX_BYTES = 64 * 1024 * 1024  # a log larger than this is not a command's answer
_MAX_ESCAPES = 1_000_000  # more are no colours of a terminal
_SHORT = 4096  # what a shell says in place of a program is a line or two

# What the shell, sudo and the C library say under LANG=zh_CN (their own translations), as they say it under C.
_CHINESE = {
    "未找到命令": "command not found",
    "找不到命令": "command not found",
    "没有那个文件或目录": "No such file or directory",
    "是一个目录": "Is a directory",
    "权限不够": "Permission denied",
    "不允许的操作": "Operation not permitted",
    "需要密码": "a password is required",
    "不在 sudoers 文件中": "is not in the sudoers file",
    "设备或资源忙": "Device or resource busy",
    "无法运行命令": "failed to run command",
    "：": ": ",
}
_CHINESE_WORDS = re.compile("|".join(_CHINESE))
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def clean(output: bytes) -> str | None:
    """Text without byte order mark, ANSI sequences and carriage returns; None when it is binary or too large.

    UTF-8 first; bytes that are not UTF-8 become U+FFFD. UTF-16 is recognised by its byte order mark. A short text, as a
    shell prints it in place of a program, has the shell's Chinese messages in English.
    """
    if len(output) > MAX_BYTES:
        return None
    if output.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = output.decode("utf-16", errors="replace")
    else:
        if b"\x00" in output:
            return None
        text = output.decode("utf-8-sig", errors="replace")
    if "\x1b" in text:
        if text.count("\x1b") > _MAX_ESCAPES:
            return None
        text = _ANSI.sub("", text)
    if len(text) <= _SHORT and not text.isascii() and _CHINESE_WORDS.search(text.replace("：", "")):
        text = _CHINESE_WORDS.sub(lambda match: _CHINESE[match[0]], text)
    return text.replace("\r\n", "\n").replace("\r", "\n")


def bus_id(raw: str) -> str:
    """`00000000:0B:00.0` -> `0000:0b:00.0`; a missing domain is 0000, a missing function 0; "" when it is none."""
    match = re.fullmatch(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?", raw.strip())
    if not match:
        return ""
    domain, bus, device, function = match.groups()
    return f"{(domain or '0000')[-4:]}:{bus}:{device}.{function or '0'}".lower()
