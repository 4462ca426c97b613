"""The ready CI files: their form is that of GitHub Actions and GitLab CI, and the commands in them run."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.matrix.conftest import HEAD
from tests.matrix.test_findings import MORE, case, git, site
from tests.matrix.test_reach import DRIVERS

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "ci"
ACTIONS_EVENTS = {"pull_request", "push", "schedule", "workflow_dispatch"}
STEP = {"name", "id", "if", "uses", "with", "run", "env", "shell", "continue-on-error", "working-directory"}
JOB = {"name", "runs-on", "timeout-minutes", "permissions", "steps", "env", "needs", "if", "strategy", "container"}
WORKFLOW = {"name", "on", "permissions", "concurrency", "env", "jobs", "defaults"}
GITLAB_TOP = {"stages", "variables", "default", "workflow", "include"}
GITLAB_JOB = {
    "image", "stage", "timeout", "before_script", "script", "after_script", "artifacts", "rules", "extends",
    "variables", "needs", "tags", "allow_failure",
}  # fmt: skip


def read(name: str) -> dict[str, Any]:
    """The YAML with every scalar as text: `on` stays a word."""
    found: dict[str, Any] = yaml.load((FOLDER / name).read_text(encoding="utf-8"), Loader=yaml.BaseLoader)
    return found


def test_the_workflow_has_the_form_of_github_actions() -> None:
    flow = read("github-actions.yml")
    assert set(flow) <= WORKFLOW and set(flow["on"]) <= ACTIONS_EVENTS
    for job in flow["jobs"].values():
        assert set(job) <= JOB and job["runs-on"] and job["timeout-minutes"].isdigit()
        for step in job["steps"]:
            assert set(step) <= STEP and ("uses" in step) != ("run" in step)
            if "uses" in step:
                assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+", step["uses"])
            # What a stranger can name (a branch) reaches the shell by the environment only.
            assert "${{" not in step.get("run", "")
    assert flow["permissions"] == {"contents": "read"}


def test_the_pipeline_has_the_form_of_gitlab() -> None:
    pipeline = read("gitlab-ci.yml")
    jobs = {name: job for name, job in pipeline.items() if name not in GITLAB_TOP}
    for name, job in jobs.items():
        assert set(job) <= GITLAB_JOB
        whole = {**(jobs[job["extends"]] if "extends" in job else {}), **job}
        assert whole["stage"] in pipeline["stages"]
        assert name.startswith(".") or all(isinstance(line, str) for line in whole["script"])
        assert all(set(rule) <= {"if", "when", "changes", "exists"} for rule in whole["rules"])
    assert jobs["matrix-check"]["artifacts"]["reports"]["junit"] == "matrix.xml"


def commands(name: str) -> list[str]:
    """Each `fleet …` line of a file."""
    if name == "github-actions.yml":
        lines = [s["run"] for job in read(name)["jobs"].values() for s in job["steps"] if "run" in s]
    else:
        jobs = [job for key, job in read(name).items() if key not in GITLAB_TOP]
        lines = [line for job in jobs for part in ("script", "after_script") for line in job.get(part, ())]
    return [line for line in lines if "fleet " in line]


@pytest.mark.parametrize("name", ["github-actions.yml", "gitlab-ci.yml"])
def test_its_commands_run(name: str, tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    site(repo / "matrix.d", HEAD + DRIVERS)
    case(repo / "cases", "one")
    git(tmp_path, "init", "-q", "-b", "main", str(repo))
    git(repo, "add", ".")
    git(repo, "commit", "-q", "-m", "first")
    git(repo, "update-ref", "refs/remotes/origin/main", "HEAD")
    base = subprocess.run(["git", "-C", str(repo), "rev-parse", "HEAD"], capture_output=True, text=True, check=True)
    bash = shutil.which("bash")
    assert bash is not None
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "fleet").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m fleet.cli.main "$@"\n')
    (folder / "fleet").chmod(0o755)
    env = {
        "PATH": f"{folder}:/usr/bin:/bin", "HOME": str(tmp_path), "BASE": "main", "FLEET_MATRIX_PATH": "matrix.d",
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "CI_MERGE_REQUEST_DIFF_BASE_SHA": base.stdout.strip(),
        "PYTHONPATH": str(FOLDER.parents[1]), "FLEET_STATE_DIR": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path),
    }  # fmt: skip

    def run(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([bash, "-e", "-o", "pipefail", "-c", command], cwd=repo, env=env, capture_output=True,
                              text=True, check=False)  # fmt: skip

    assert run("fleet matrix check --cases cases --write-answers answers.json").returncode == 0
    found = commands(name)
    assert len(found) >= 3
    said = ""
    for command in found:
        ran = run(command)
        assert ran.returncode == 0, (command, ran.stdout, ran.stderr)
        said += ran.stdout
    assert "the tables are the same" in said
    site(repo / "matrix.d", MORE)
    check, *_ = [command for command in found if "--answers" in command and "||" not in command]
    assert run(check).returncode == 4
    move = next(run(command).stdout for command in found if "matrix diff" in command)
    assert "this change moves 1 node class from driver 2.0 to driver 2.5" in move
