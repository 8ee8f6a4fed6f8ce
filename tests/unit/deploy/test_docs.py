"""What docs/kubernetes.md tells operators to type does what it says, as far as that can be tried without a cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from gpufair.node.pod_exits import PodExit
from tests.unit.deploy.read import DEPLOY, ROOT

TEXT = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="there is no openssl here")
def test_the_certificate_is_one_that_python_takes(tmp_path: Path) -> None:
    """Python 3.13 looks more strictly: an authority has to say that it may sign, a certificate by whom it was."""
    block = next(one for one in re.findall(r"```sh\n(.*?)```", TEXT, re.DOTALL) if "openssl req -x509" in one)
    made = block.partition("kubectl")[0]
    subprocess.run(["bash", "-euc", made], check=True, cwd=tmp_path, capture_output=True)
    seen = subprocess.run(
        ["openssl", "verify", "-x509_strict", "-verify_hostname", "gpufair.gpufair.svc", "-CAfile", "ca.crt", "tls.crt"],
        check=True, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert seen.stdout.strip() == "tls.crt: OK"


def test_files_that_are_named_are_there() -> None:
    for name in re.findall(r"deploy/[a-z0-9/.-]+[a-z]", TEXT):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(?:components|overlays)/([a-z0-9.-]+)`", TEXT):
        assert any((DEPLOY / "kubernetes" / place / name).is_dir() for place in ("components", "overlays")), name


def test_exit_codes_are_those_of_the_pod() -> None:
    told = TEXT[TEXT.index("Exit codes of a pod") :].partition("\n\n")[0]
    codes = {int(number) for number in re.findall(r"\b\d+\b", told)}
    assert codes == {code.value for code in PodExit if code is not PodExit.BAD_CONFIG}
