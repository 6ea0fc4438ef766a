"""A real KDC of MIT Kerberos for the tests: its database, its configuration and its port are the test's own."""

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

REALM: Final = "ODRADEK.EXAMPLE"
START_SECONDS: Final = 20.0
_SEARCHED: Final = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
_KRB5_CONF: Final = """[libdefaults]
  default_realm = {realm}
  dns_lookup_kdc = false
  dns_lookup_realm = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_KDC_CONF: Final = """[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {directory}/principal
    key_stash_file = {directory}/stash
    acl_file = {directory}/acl
  }}
[logging]
  kdc = FILE:{directory}/kdc.log
"""


def krb5_program(name: str) -> str:
    """Its path; the test is skipped where it is not installed."""
    path = shutil.which(name, path=_SEARCHED)
    if path is None:
        pytest.skip(f"absent: {name} (Debian: krb5-kdc, krb5-admin-server, krb5-user)")
    return path


def free_port() -> int:
    """For a server whose address others must know before it starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


class Kdc:
    """Keytabs of principals that it makes. `environment`: for programs of Kerberos."""

    def __init__(self, directory: Path, port: int) -> None:
        self.directory = directory
        self.krb5_conf = directory / "krb5.conf"
        kdc_conf = directory / "kdc.conf"
        self.krb5_conf.write_text(_KRB5_CONF.format(realm=REALM, port=port))
        kdc_conf.write_text(_KDC_CONF.format(realm=REALM, port=port, directory=directory))
        self.environment: Mapping[str, str] = {
            **os.environ,
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(kdc_conf),
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _run(self, program: str, *arguments: str) -> None:
        command = [krb5_program(program), *arguments]
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, timeout=START_SECONDS, check=False
        )
        assert done.returncode == 0, done.stderr

    def keytab(self, principal: str) -> str:
        """For a new principal, or with new keys for one that exists."""
        path = self.directory / f"{principal.replace('/', '-')}.keytab"
        self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
        self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return str(path)

    def kinit(self, principal: str, keytab: str, cache: Path) -> None:
        self._run("kinit", "-c", str(cache), "-k", "-t", keytab, principal)


@contextmanager
def running_kdc(directory: Path) -> Iterator[Kdc]:
    """Until the end of the block."""
    for name in ("krb5kdc", "kdb5_util", "kadmin.local", "kinit"):
        krb5_program(name)
    port = free_port()
    kdc = Kdc(directory, port)
    process = subprocess.Popen(
        [krb5_program("krb5kdc"), "-n", "-r", REALM], env=kdc.environment, stdout=subprocess.DEVNULL
    )
    try:
        _wait_until_open(process, port)
        yield kdc
    finally:
        process.terminate()
        process.wait(START_SECONDS)


def _wait_until_open(process: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as attempt:
            if attempt.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    raise AssertionError("the KDC did not start")
