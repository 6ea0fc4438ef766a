"""`odradek cert`: certificates of an authority of one's own; show a certificate."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping
from pathlib import Path

import click

from odradek.cli.numbers import Whole
from odradek.cli.output import remark, say
from odradek.cli.serving.secure import write_private
from odradek.model.errors import ConfigError
from odradek.security.tls.authority import CertificateAuthority, CertificateRequest, IssuedCertificate
from odradek.security.tls.contexts import certificate_in, names_in
from odradek.security.tls.principal_mapping import distinguished_name

directory_option = click.option(
    "--dir", "directory", type=click.Path(path_type=Path), required=True, help="Where the authority is kept."
)


@click.group()
def cert() -> None:
    """Make certificates for brokers and clients, and look at them."""


@cert.command()
@click.argument("name")
@directory_option
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A host that a broker is reached by; several times.",
)
@click.option(
    "--days",
    type=Whole(1, 36_500),
    default=397,
    show_default=True,
    help="The days for which the certificate is valid.",
)
def issue(name: str, directory: Path, hosts: tuple[str, ...], days: int) -> None:
    """Make a key and a certificate, in DIR/NAME.pem; the authority, too, if DIR has none. For a broker name its hosts."""
    now = datetime.datetime.now(datetime.UTC)
    signer = _authority(directory, now)
    request = CertificateRequest(name=name, hosts=hosts, is_server=bool(hosts), is_client=True, days=days)
    path = directory / f"{name.partition(',')[0].rpartition('=')[2]}.pem"
    write_private(path, signer.issue(request, now=now).pem)
    remark(f"made {path}, signed by the authority in {directory / 'ca.pem'}")


def _authority(directory: Path, now: datetime.datetime) -> CertificateAuthority:
    key, certificate = directory / "ca.key", directory / "ca.pem"
    if key.exists() and certificate.exists():
        return CertificateAuthority(
            IssuedCertificate(key=key.read_bytes(), certificate=certificate.read_bytes())
        )
    if key.exists() or certificate.exists():
        raise ConfigError(
            f"{directory} holds only one of ca.key and ca.pem: restore the other one, or give another --dir"
        )
    signer = CertificateAuthority.new("odradek", now=now)
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(key, signer.issued.key)
    certificate.write_bytes(signer.issued.certificate)
    return signer


@cert.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def show(file: Path) -> None:
    """Show who a certificate is for, who signed it, and when it expires."""
    decoded = certificate_in(file.read_bytes(), str(file))
    say(f"subject  {distinguished_name(decoded.get('subject', ()))}")
    say(f"issuer   {distinguished_name(decoded.get('issuer', ()))}")
    names = ", ".join(sorted(name for _, name in names_in(decoded))) or "none"
    say(f"hosts    {names}")
    say(f"expires  {decoded['notAfter']} ({days_left(decoded):.0f} days)")


def days_left(decoded: Mapping[str, object]) -> float:
    """Returns how many days are left until a certificate expires."""
    expires = ssl.cert_time_to_seconds(str(decoded["notAfter"]))
    return (expires - datetime.datetime.now(datetime.UTC).timestamp()) / 86_400
