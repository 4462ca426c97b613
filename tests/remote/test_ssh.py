"""The SSH transport against real servers and against hosts that misbehave."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fleet.config import Settings
from fleet.core.errors import BadInput, FleetError, NodesFailed
from fleet.core.model import Node
from fleet.remote import Answer, Jump, Limits, Section, Ssh, build, fetch_host_key, parse, sweep
from tests.remote import badhosts
from tests.remote.badhosts import BadHost, Behaviour
from tests.remote.sshd import SUDO_DENIED, SUDO_GRANTED, Sshd, free_port, make_key, public

Start = Callable[..., Sshd]
Bad = Callable[[str, Behaviour], BadHost]
QUICK = Limits(connect_s=3, banner_s=2, handshake_s=3, auth_s=5)
NONCE = "00112233aabbccdd"


def run(transport: Ssh, node: Node, script: str = "echo hello; exit 3", timeout_s: float = 20) -> Answer:
    try:
        return transport.run(node, script, timeout_s=timeout_s, sudo=False)
    finally:
        transport.close()


@pytest.fixture(scope="module")
def good(sshd: Start) -> Sshd:
    return sshd(*(f"127.1.1.{i}" for i in range(1, 17)), host_key_kinds=("ed25519", "rsa"))


def node(server: Sshd | BadHost, name: str = "n1", address: str = "", user: str = "root") -> Node:
    where = address or (server.address if isinstance(server, BadHost) else server.addresses[0])
    return Node(name, where, server.port, user)


def test_script_runs_and_its_exit_status_and_outputs_come_back(good: Sshd, client_key: Path) -> None:
    answer = run(Ssh(str(client_key), host_keys={"n1": good.key}), node(good), "echo out; echo err >&2; read x; exit 3")
    assert (answer.phase, answer.rc, answer.stdout, answer.stderr) == ("done", 3, b"out\n", b"err\n")
    assert answer.host_key == good.key
    assert answer.ok


def test_unknown_key_is_refused_before_login_under_pinned(good: Sshd, client_key: Path) -> None:
    answer = run(Ssh(str(client_key)), node(good))
    assert (answer.phase, answer.trouble) == ("hostkey", "unknown-key")
    assert answer.host_key == good.key
    assert "SHA256:" in answer.detail


def test_first_contact_is_accepted_under_tofu(good: Sshd, client_key: Path) -> None:
    answer = run(Ssh(str(client_key), policy="tofu"), node(good))
    assert answer.ok
    assert answer.host_key == good.key


@pytest.mark.parametrize("policy", ["pinned", "tofu"])
def test_changed_key_is_refused_under_every_policy(good: Sshd, client_key: Path, tmp_path: Path, policy: str) -> None:
    other = public(make_key(tmp_path, "other"))
    answer = run(Ssh(str(client_key), host_keys={"n1": other}, policy=policy), node(good))  # type: ignore[arg-type]
    assert (answer.phase, answer.trouble) == ("hostkey", "key-changed")


def test_recorded_rsa_key_is_asked_for_although_the_server_prefers_another(good: Sshd, client_key: Path) -> None:
    rsa = public(good.folder / "host_rsa")
    answer = run(Ssh(str(client_key), host_keys={"n1": rsa}), node(good))
    assert answer.ok
    assert answer.host_key == rsa


def test_refused_login(good: Sshd, tmp_path: Path) -> None:
    stranger = make_key(tmp_path, "stranger")
    answer = run(Ssh(str(stranger), host_keys={"n1": good.key}), node(good))
    assert (answer.phase, answer.trouble) == ("auth", "login-refused")
    assert "root" in answer.detail


def test_user_certificate(sshd: Start, tmp_path: Path) -> None:
    authority, user_key = make_key(tmp_path, "ca"), make_key(tmp_path, "user")
    command = ["ssh-keygen", "-q", "-s", str(authority), "-I", "op", "-n", "root", f"{user_key}.pub"]
    subprocess.run(command, check=True)
    server = sshd(
        "127.1.2.1", options=[f"TrustedUserCAKeys {authority}.pub", "AuthorizedKeysFile none"]
    )  # only the certificate opens it
    certificate = tmp_path / "user-cert.pub"
    assert run(Ssh(str(user_key), certificate=str(certificate), policy="tofu"), node(server)).ok
    certificate.rename(tmp_path / "elsewhere")  # the file beside the key would be found by itself
    assert run(Ssh(str(user_key), policy="tofu"), node(server)).trouble == "login-refused"
    assert run(Ssh(str(user_key), certificate=str(tmp_path / "elsewhere"), policy="tofu"), node(server)).ok


def test_sudo_is_used_unless_root(sshd: Start, client_key: Path) -> None:
    server = sshd("127.1.2.2", sudo=SUDO_GRANTED)
    transport = Ssh(str(client_key), host_keys={"n1": server.key})
    script = "echo sudo=${FLEET_TEST_SUDO:-no} $(id -u)"
    try:
        for user, sudo, said in (("plain", True, b"sudo=yes 20002\n"), ("plain", False, b"sudo=no 20002\n"),
                                 ("root", True, b"sudo=no 0\n")):  # fmt: skip
            answer = transport.run(node(server, user=user), script, timeout_s=20, sudo=sudo)
            assert answer.stdout == said
    finally:
        transport.close()


@pytest.mark.parametrize("sudo", [SUDO_DENIED, ""])
def test_denied_or_missing_sudo_leaves_a_trace(sshd: Start, client_key: Path, sudo: str) -> None:
    server = sshd("127.1.2.3", sudo=sudo)
    transport = Ssh(str(client_key), host_keys={"n1": server.key})
    try:
        answer = transport.run(node(server, user="plain"), "echo hello", timeout_s=20, sudo=True)
    finally:
        transport.close()
    assert answer.rc not in (0, None)
    assert answer.stdout == b""
    assert b"sudo" in answer.stderr


def test_login_noise_and_a_forged_marker_stay_outside_the_frames(good: Sshd, client_key: Path) -> None:
    script = build([Section("os", "echo real", 5)], NONCE)
    answer = run(Ssh(str(client_key), host_keys={"n1": good.key}), node(good, user="noisy"), script)
    assert b"fine day" in answer.stdout
    frames = parse(answer.stdout, NONCE)
    assert frames.done
    assert frames.sections["os"].output == b"real\n"
    assert frames.noise > 20
    assert frames.problems == ()


def test_hang_after_login_ends_at_the_deadline(sshd: Start, client_key: Path) -> None:
    server = sshd("127.1.2.4", options=["ForceCommand sleep 30"])
    answer = run(Ssh(str(client_key), host_keys={"n1": server.key}), node(server), timeout_s=2)
    assert (answer.phase, answer.trouble) == ("run", "timeout")
    assert answer.seconds < 10


def test_output_past_the_cap_is_cut_and_said(sshd: Start, client_key: Path) -> None:
    server = sshd("127.1.2.5", options=["ForceCommand yes"])
    answer = run(Ssh(str(client_key), host_keys={"n1": server.key}, output_cap=100_000), node(server))
    assert answer.trouble == "output-cap"
    assert len(answer.stdout) == 100_000


def test_connection_lost_in_the_middle_keeps_what_came(sshd: Start, client_key: Path) -> None:
    server = sshd("127.1.2.6")
    script = build(
        [Section("one", "echo 1", 5), Section("two", "echo 2; kill -9 $(ps -o ppid= $FLEET_SH); sleep 9", 9)], NONCE
    )
    script = "FLEET_SH=$$; export FLEET_SH\n" + script
    answer = run(Ssh(str(client_key), host_keys={"n1": server.key}), node(server), script)
    assert (answer.phase, answer.trouble) == ("run", "closed")
    frames = parse(answer.stdout, NONCE)
    assert frames.sections["one"].output == b"1\n"
    assert frames.sections["two"].state == "truncated"
    assert not frames.done


def test_shell_ended_by_a_signal_has_no_exit_status(good: Sshd, client_key: Path) -> None:
    answer = run(Ssh(str(client_key), host_keys={"n1": good.key}), node(good), "echo x; kill -9 $$")
    assert (answer.phase, answer.rc, answer.stdout) == ("done", None, b"x\n")


def test_leftover_process_holding_the_output_open_does_not_hold_the_run(good: Sshd, client_key: Path) -> None:
    answer = run(Ssh(str(client_key), host_keys={"n1": good.key}), node(good), "echo x; sleep 15 & exit 4")
    assert (answer.phase, answer.rc, answer.stdout) == ("done", 4, b"x\n")
    assert answer.seconds < 12


BAD: list[tuple[Behaviour, str, set[str]]] = [
    (badhosts.silent, "banner", {"timeout"}),
    (badhosts.drip, "banner", {"timeout"}),
    (badhosts.endless_text, "banner", {"timeout"}),
    (badhosts.flood, "banner", {"protocol"}),
    (badhosts.hang_up, "banner", {"closed"}),
    (badhosts.hang_in_handshake, "handshake", {"timeout"}),
    (badhosts.nonsense_after_banner, "handshake", {"protocol", "closed"}),
]


@pytest.mark.parametrize(("behaviour", "phase", "troubles"), BAD, ids=[b.__name__ for b, _, _ in BAD])
def test_bad_host_is_named_for_what_it_is(
    bad_host: Bad, client_key: Path, behaviour: Behaviour, phase: str, troubles: set[str]
) -> None:
    started = time.monotonic()
    answer = run(Ssh(str(client_key), limits=QUICK, policy="tofu"), node(bad_host("127.1.3.1", behaviour)), timeout_s=6)
    assert answer.phase == phase
    assert answer.trouble in troubles, answer.detail
    assert answer.detail
    assert time.monotonic() - started < 15


def test_closed_port(client_key: Path) -> None:
    answer = run(Ssh(str(client_key), limits=QUICK), Node("n1", "127.1.3.2", free_port("127.1.3.2")))
    assert (answer.phase, answer.trouble) == ("connect", "unreachable")
    assert "refused" in answer.detail.lower()


def test_unknown_host_name(client_key: Path) -> None:
    answer = run(Ssh(str(client_key), limits=QUICK), Node("n1", "no-such-host.invalid"))
    assert (answer.phase, answer.trouble) == ("connect", "unreachable")


def test_bad_hosts_do_not_delay_healthy_nodes(good: Sshd, bad_host: Bad, client_key: Path) -> None:
    """40 bad hosts before 16 good ones, 4 slots for handshakes: every good node answers before any slow one is done."""
    behaviours = [badhosts.silent, badhosts.drip, badhosts.endless_text, badhosts.hang_in_handshake]
    bad = [bad_host(f"127.1.4.{i}", behaviours[i % 4]) for i in range(40)]
    nodes = [node(host, f"bad{i}") for i, host in enumerate(bad)]
    nodes += [node(good, f"good{i}", address) for i, address in enumerate(good.addresses)]
    keys = {n.name: good.key for n in nodes if n.name.startswith("good")}
    slow = Limits(connect_s=5, banner_s=12, handshake_s=25, auth_s=10)
    transport = Ssh(str(client_key), host_keys=keys, limits=slow, gate=4, policy="tofu")
    answers: list[Answer] = []
    for answer in sweep(transport, nodes, "echo hi", fanout=64, timeout_s=30, sudo=False, retry=False):
        answers.append(answer)
        if sum(a.name.startswith("good") for a in answers) == len(good.addresses):
            break
    transport.close()
    healthy = [a for a in answers if a.name.startswith("good")]
    assert all(a.ok and a.stdout == b"hi\n" for a in healthy), [a.detail for a in healthy]
    # Were slots held for the whole 25 s of a hung handshake, 10 of those on 4 slots would keep good nodes for a minute.
    assert not any(a.phase == "handshake" and a.trouble == "timeout" for a in answers)


def test_close_ends_runs_under_way(good: Sshd, client_key: Path) -> None:
    transport = Ssh(str(client_key), host_keys={"n1": good.key})
    threading.Timer(1.5, transport.close).start()
    answer = transport.run(node(good), "sleep 30", timeout_s=60, sudo=False)
    assert answer.trouble == "closed"
    assert answer.seconds < 20
    assert transport.run(node(good), "echo", timeout_s=5, sudo=False).trouble == "closed"


def test_bastion_is_shared_and_leads_to_the_node(sshd: Start, good: Sshd, client_key: Path) -> None:
    jump = sshd("127.1.2.7")
    nodes = [node(good, f"n{i}", address) for i, address in enumerate(good.addresses[:8])]
    keys = {n.name: good.key for n in nodes}
    place = Jump("127.1.2.7", jump.port, "plain", jump.key)
    transport = Ssh(str(client_key), host_keys=keys, bastion=place)
    try:
        answers = list(sweep(transport, nodes, "echo $SSH_CONNECTION", fanout=8, timeout_s=20, sudo=False))
    finally:
        transport.close()
    assert all(a.ok for a in answers), [a.detail for a in answers]
    assert sorted(a.stdout.split()[2].decode() for a in answers) == sorted(good.addresses[:8])
    assert jump.log.read_text().count("Accepted publickey for plain") == 1


def test_nodes_that_hang_up_do_not_take_the_bastion_down(
    sshd: Start, good: Sshd, bad_host: Bad, client_key: Path
) -> None:
    """Data sent on a channel that was just closed makes OpenSSH end the whole connection to the bastion."""
    jump = sshd("127.1.2.9")
    bad = [bad_host(f"127.1.4.{i}", b) for i, b in enumerate([badhosts.hang_up, badhosts.nonsense_after_banner] * 3)]
    bad.append(bad_host("127.1.4.9", badhosts.silent))
    nodes = [node(host, f"bad{i}") for i, host in enumerate(bad)]
    nodes += [node(good, f"good{i}-{a}", a) for i in range(6) for a in good.addresses]
    keys = {n.name: good.key for n in nodes if n.name.startswith("good")}
    place = Jump("127.1.2.9", jump.port, "plain", jump.key)
    transport = Ssh(str(client_key), host_keys=keys, bastion=place, limits=QUICK)
    try:
        answers = list(sweep(transport, nodes, "echo hi", fanout=16, timeout_s=30, sudo=False, retry=False))
    finally:
        transport.close()
    assert {(a.phase, a.detail) for a in answers if a.name.startswith("good")} == {("done", "")}
    assert all(a.trouble for a in answers if a.name.startswith("bad"))
    assert jump.log.read_text().count("Accepted publickey for plain") == 1


def test_bastion_with_another_key_or_a_closed_port_is_named(sshd: Start, good: Sshd, client_key: Path) -> None:
    jump = sshd("127.1.2.8")
    wrong = Jump("127.1.2.8", jump.port, "plain", good.key)
    answer = run(Ssh(str(client_key), host_keys={"n1": good.key}, bastion=wrong), node(good))
    assert (answer.phase, answer.trouble) == ("connect", "unreachable")
    assert "bastion" in answer.detail
    right = Jump("127.1.2.8", jump.port, "plain", jump.key)
    closed = Node("n1", "127.1.3.3", free_port("127.1.3.3"))
    answer = run(Ssh(str(client_key), bastion=right), closed)
    assert (answer.phase, answer.trouble) == ("connect", "unreachable")


def test_fetch_host_key_needs_no_login_key(good: Sshd, bad_host: Bad) -> None:
    assert fetch_host_key(node(good), Settings()) == good.key
    with pytest.raises(NodesFailed) as caught:
        fetch_host_key(node(bad_host("127.1.3.4", badhosts.hang_up)), Settings())
    assert caught.value.slug == "no-host-key"


def test_unusable_keys_are_named(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "secret!", "-f", str(locked)], check=True)
    (tmp_path / "junk").write_text("no key")
    for name, cause in (("locked", "passphrase"), ("junk", ""), ("missing", "No such file")):
        with pytest.raises(BadInput) as caught:
            Ssh(str(tmp_path / name))
        assert caught.value.slug == "bad-ssh-key"
        assert cause in caught.value.cause


@pytest.mark.parametrize(
    ("text", "jump"),
    [
        ("ops@jump:2200", Jump("jump", 2200, "ops")),
        ("jump", Jump("jump")),
        ("ops@[fd00::1]:22", Jump("fd00::1", 22, "ops")),
        ("[fd00::1]", Jump("fd00::1")),
        ("ops@fd00::1", Jump("fd00::1", 22, "ops")),
    ],
)
def test_bastion_setting(text: str, jump: Jump) -> None:
    assert Jump.parse(text) == jump


@pytest.mark.parametrize("text", ["", "ops@", "jump:port", "jump:0", "jump:70000"])
def test_bad_bastion_setting(text: str) -> None:
    with pytest.raises(FleetError):
        Jump.parse(text)


def test_bad_bastion_key() -> None:
    with pytest.raises(BadInput) as caught:
        Jump.parse("jump", "not a key")
    assert caught.value.slug == "bad-host-key"
