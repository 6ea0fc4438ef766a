"""From Kerberos principals to users: the rules of Kafka."""

import pytest

from odradek.model.errors import ConfigError
from odradek.security.sasl.exchange import LoginRefused
from odradek.security.sasl.kerberos_names import LocalNames

REALM = "REALM.EXAMPLE"


@pytest.mark.parametrize(
    ("rules", "principal", "user"),
    [
        (["DEFAULT"], "ann@REALM.EXAMPLE", "ann"),
        (["DEFAULT"], "ann/desk@REALM.EXAMPLE", "ann"),
        (["DEFAULT"], "ann", "ann"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "bob@OTHER", "bob"),
        (["RULE:[1:$1@$0](.*@OTHER)s/@.*//", "DEFAULT"], "bob@REALM.EXAMPLE", "bob"),
        (["RULE:[2:$1](HTTP)s/^/service-//L"], "HTTP/host@REALM.EXAMPLE", "service-http"),
        (["RULE:[2:$1.$2]"], "kafka/host@REALM.EXAMPLE", "kafka.host"),
        (["RULE:[1:$1]/U"], "ann@OTHER", "ANN"),
        (["RULE:[1:$1](.*)s/a/b/g"], "anna@OTHER", "bnnb"),
        (["RULE:[1:$1](.*)s/a/b/"], "anna@OTHER", "bnna"),
        (["RULE:[1:$1](.*)s/(.)(.*)/$2$1/"], "ann@OTHER", "nna"),
    ],
)
def test_the_first_rule_that_fits_names_the_user(rules: list[str], principal: str, user: str) -> None:
    assert LocalNames(rules, REALM).of(principal) == user


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (["DEFAULT"], "ann@OTHER"),
        (["RULE:[2:$1]"], "ann@REALM.EXAMPLE"),
        (["RULE:[1:$1@$0]"], "ann@REALM.EXAMPLE"),
        (["RULE:[1:$1](.*)s/.*//"], "ann@REALM.EXAMPLE"),
        (["DEFAULT"], "a/b/c@REALM.EXAMPLE"),
        (["DEFAULT"], "@REALM.EXAMPLE"),
    ],
)
def test_who_has_no_name_does_not_get_in(rules: list[str], principal: str) -> None:
    with pytest.raises(LoginRefused):
        LocalNames(rules, REALM).of(principal)


@pytest.mark.parametrize(
    "rule", ["", "ALL", "RULE:[1:$2]", "RULE:[1:$1]s/a/", "RULE:[1:$1](*)", "RULE:[1:$1](.*)s/a/$1/"]
)
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    with pytest.raises(ConfigError, match=r"sasl\.kerberos\.principal\.to\.local\.rules"):
        LocalNames([rule], REALM)
