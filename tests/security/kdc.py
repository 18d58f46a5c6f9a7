"""MIT Kerberos from Debian: a KDC on loopback with a realm of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

from odradek.ports import free_port
from tests.jvm.process import BackgroundProcess

REALM: Final = "ODRADEK.TEST"
PROGRAMS: Final = ("krb5kdc", "kdb5_util", "kadmin.local")
_PATH: Final = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


def missing_programs() -> list[str]:
    """The programs of the KDC that are not installed (krb5-kdc and krb5-admin-server of Debian)."""
    return [name for name in PROGRAMS if shutil.which(name, path=_PATH) is None]


class Kdc:
    """A realm. It runs from `start` to `stop`; all of its files are in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._process: BackgroundProcess | None = None
        port = free_port()
        self.config = folder / "krb5.conf"
        self.config.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_realm = false\ndns_lookup_kdc = false\n"
            "dns_canonicalize_hostname = false\nrdns = false\nudp_preference_limit = 1\n"
            f"default_ccache_name = FILE:{folder}/tickets\n"
            f"[realms]\n{REALM} = {{\n  kdc = 127.0.0.1:{port}\n}}\n"
            f"[domain_realm]\nlocalhost = {REALM}\n"
        )
        profile = folder / "kdc.conf"
        profile.write_text(
            f'[kdcdefaults]\nkdc_listen = ""\nkdc_tcp_listen = 127.0.0.1:{port}\n'
            f"[realms]\n{REALM} = {{\n  database_name = {folder}/principal\n  key_stash_file = {folder}/stash\n"
            f"  acl_file = {folder}/kadm5.acl\n  supported_enctypes = aes256-cts-hmac-sha1-96:normal\n}}\n"
            "[logging]\nkdc = STDERR\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(self.config),
            "KRB5_KDC_PROFILE": str(profile),
            "KRB5RCACHENAME": f"file2:{folder}/replays",
        }

    def start(self) -> None:
        """Create the realm, and serve it."""
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        program = shutil.which("krb5kdc", path=_PATH)
        assert program is not None
        variables = [f"{name}={value}" for name, value in self.environment.items()]
        self._process = BackgroundProcess(["env", *variables, program, "-n", "-r", REALM])
        self._process.stderr.wait_for("commencing operation", 30)

    def stop(self) -> None:
        """End the KDC."""
        if self._process is not None:
            self._process.kill()

    def key_table(self, *principals: str) -> Path:
        """A file with new keys of these principals, which are created."""
        path = self._folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self._run("kadmin.local", "-r", REALM, "-q", f"addprinc -randkey {principal}")
            self._run("kadmin.local", "-r", REALM, "-q", f"ktadd -k {path} {principal}")
        return path

    def _run(self, program: str, *arguments: str) -> None:
        found = shutil.which(program, path=_PATH)
        assert found is not None
        subprocess.run(
            [found, *arguments],
            env={**os.environ, **self.environment},
            check=True,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            timeout=60,
        )
