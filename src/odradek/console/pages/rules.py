"""Access rules (ACLs): listed, added, removed, and explained. A change shows first who may do what afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from odradek.client.network.errors import explain
from odradek.console.model.acl_changes import (
    KIND_NAMES,
    KIND_WORDS,
    OPERATION_WORDS,
    AclEffects,
    effects_of,
    operation_word,
)
from odradek.console.pages.offers import age_of, list_page, offers_of, reading_of
from odradek.console.web.application import ConsolePage
from odradek.console.web.visit import TOKEN_FIELD, Visit
from odradek.model.errors import ConfigError, ErrorCode, KafkaError, OdradekError
from odradek.protocol.acls import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    AclOperation,
    AclPermission,
    AclResourceType,
    PatternType,
)
from odradek.security.acl_decision import AclDecision, AclJudge
from odradek.security.acls import Acl, AclFilter, AclPattern, canonical_host, new_acl

CALL_S: Final = 15.0
FIELD_LENGTH_MAX: Final = 1_000
_NOTHING: Final[tuple[dict[str, str] | None]] = (None,)


async def show(visit: Visit) -> Response:
    """Lists access rules."""
    nothing: list[Acl] = []
    acls, problem = await reading_of(visit, visit.model.access.acls, nothing)
    return visit.render(
        "rules.html",
        active="people",
        tab="rules",
        listed=list_page(visit, [(rule_text(acl), acl) for acl in acls]),
        problem=problem,
        read_age=age_of(visit, visit.model.access.acls),
        offers=await offers_of(visit),
        **_shapes(),
    )


def _shapes() -> dict[str, object]:
    return {
        "rule_text": rule_text,
        "resource_text": resource_text,
        "rule_link": rule_link,
        "word": operation_word,
    }


def resource_text(pattern: AclPattern) -> str:
    """Returns the resource as commands spell it; a blank and an ellipsis mark what may follow a prefix."""
    longer = " …" if pattern.pattern_type is PatternType.PREFIXED else ""
    return (
        f"{KIND_NAMES.get(pattern.resource_type, pattern.resource_type.name.lower())}:{pattern.name}{longer}"
    )


def rule_text(acl: Acl) -> str:
    """Returns the rule as one line, in which a search looks."""
    permission = acl.permission.name.lower()
    return f"{acl.principal} {permission} {operation_word(acl.operation)} {resource_text(acl.pattern)} {acl.host}"


def rule_link(acl: Acl) -> str:
    """Returns the page that removes a rule. Everything that tells it from others is in the query."""
    return "/people/rules/remove?" + urlencode(_fields_of(acl))


def _fields_of(acl: Acl) -> dict[str, str]:
    fields = {
        "principal": acl.principal,
        "permission": acl.permission.name.lower(),
        f"operation-{operation_word(acl.operation)}": "1",
        "kind": KIND_NAMES.get(acl.pattern.resource_type, acl.pattern.resource_type.name.lower()),
        "name": acl.pattern.name,
        "host": acl.host,
    }
    return {**fields, "prefix": "1"} if acl.pattern.pattern_type is PatternType.PREFIXED else fields


async def show_new(visit: Visit) -> Response:
    return await _new_page(visit, visit.query)


async def add(visit: Visit) -> Response:
    """Shows what the rules change; with `sure`, adds the query's rules, whose letters no page has changed."""
    try:
        rules = _rules(visit, visit.query if "sure" in visit.form else visit.form)
        if "sure" in visit.form:
            await visit.run(visit.model.admin.create_acls(rules, timeout_s=CALL_S))
            visit.model.access.acls.forget()
            return visit.redirect("/people/rules?" + urlencode({"search": rules[0].principal}), "rules_added")
        known = await visit.run(visit.model.access.acls.get())
        fresh = [rule for rule in rules if rule not in set(known)]
        effects = await _effects(visit, known, [*known, *fresh], rules)
    except OdradekError as error:
        fields = visit.query if "sure" in visit.form else visit.form
        return await _new_page(visit, fields, explain(error), 400)
    return await _new_page(visit, visit.form, rules=rules, fresh=fresh, effects=effects)


async def _new_page(
    visit: Visit,
    form: Mapping[str, str],
    line: str = "",
    status: int = 200,
    *,
    rules: list[Acl] | None = None,
    fresh: list[Acl] | None = None,
    effects: AclEffects | None = None,
) -> Response:
    return visit.render(
        "rule_new.html",
        status,
        active="people",
        form=form,
        line=line,
        kinds=list(KIND_WORDS),
        operations=list(OPERATION_WORDS),
        rules=rules,
        fresh=fresh or [],
        effects=effects,
        add_link="/people/rules/new?" + urlencode({name: form[name] for name in form if name != TOKEN_FIELD}),
        offers=await offers_of(visit),
        **_shapes(),
    )


async def show_remove(visit: Visit) -> Response:
    return await _remove_page(visit, visit.query)


async def remove(visit: Visit) -> Response:
    """Removes exactly the rule that was shown."""
    try:
        (rule,) = _rules(visit, visit.query)
        gone = await visit.run(visit.model.admin.delete_acls([AclFilter.only(rule)], timeout_s=CALL_S))
    except OdradekError as error:
        return await _remove_page(visit, visit.query, explain(error), 400)
    visit.model.access.acls.forget()
    return visit.redirect("/people/rules", "rule_removed" if gone else "rule_gone")


async def _remove_page(
    visit: Visit, fields: Mapping[str, str], line: str = "", status: int = 200
) -> Response:
    rules = _rules(visit, fields)
    known = await visit.run(visit.model.access.acls.get())
    if len(rules) != 1 or rules[0] not in set(known):
        raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, visit.catalogue.text("rules.unknown"))
    effects = await _effects(visit, known, [acl for acl in known if acl != rules[0]], rules)
    return visit.render(
        "rule_remove.html",
        status,
        active="people",
        rule=rules[0],
        effects=effects,
        line=line,
        offers=await offers_of(visit),
        **_shapes(),
    )


async def _effects(visit: Visit, before: list[Acl], after: list[Acl], changed: list[Acl]) -> AclEffects:
    """Compares on a thread: there may be thousands of rules."""
    (settings,), _ = await reading_of(visit, visit.model.access.settings, _NOTHING)
    snapshot = visit.snapshot
    names = {AclResourceType.TOPIC: snapshot.topics.keys(), AclResourceType.GROUP: snapshot.groups.keys()}

    return await asyncio.to_thread(effects_of, before, after, changed, settings, names)


def _rules(visit: Visit, form: Mapping[str, str]) -> list[Acl]:
    """Returns the rules of a form, one for each operation. Raises ConfigError or INVALID_REQUEST, which name the field."""
    kind, name = _resource(visit, form)
    words = [word for word in OPERATION_WORDS if f"operation-{word}" in form]
    allowed = {operation_word(operation) for operation in (AclOperation.ALL, *OPERATIONS_OF[kind])}
    if not words:
        raise ConfigError(visit.catalogue.text("rules.no_operation"))
    if wrong := [word for word in words if word not in allowed]:
        text = visit.catalogue.text(
            "rules.wrong_operation", name=wrong[0], kind=KIND_NAMES[kind], known=", ".join(sorted(allowed))
        )
        raise ConfigError(text)
    permission = form.get("permission", "")
    if permission not in ("allow", "deny"):
        raise ConfigError(visit.catalogue.text("rules.no_permission"))
    return [
        new_acl(
            resource_type=kind,
            resource_name=name,
            pattern_type=PatternType.PREFIXED if "prefix" in form else PatternType.LITERAL,
            principal=_principal(visit, form.get("principal", "")),
            host=form.get("host", "").strip() or "*",
            operation=OPERATION_WORDS[word],
            permission=AclPermission.ALLOW if permission == "allow" else AclPermission.DENY,
        )
        for word in words
    ]


def _wrong_operation(visit: Visit, word: str, kind: AclResourceType, known: list[str]) -> str:
    words = visit.catalogue
    return words.text("rules.wrong_operation", name=word, kind=KIND_NAMES[kind], known=", ".join(known))


def _resource(visit: Visit, form: Mapping[str, str]) -> tuple[AclResourceType, str]:
    kind = KIND_WORDS.get(form.get("kind", ""))
    if kind is None:
        raise ConfigError(visit.catalogue.text("rules.no_kind"))
    if kind is AclResourceType.CLUSTER:
        return kind, CLUSTER_NAME
    name = form.get("name", "").strip()
    if not name or len(name) > FIELD_LENGTH_MAX:
        raise ConfigError(visit.catalogue.text("rules.no_name"))
    return kind, name


def _principal(visit: Visit, text: str) -> str:
    text = text.strip()
    if not text or len(text) > FIELD_LENGTH_MAX:
        raise ConfigError(visit.catalogue.text("rules.no_principal"))
    return text if ":" in text else f"User:{text}"


async def show_explain(visit: Visit) -> Response:
    """Answers whether someone may do something, and names the rule that decides."""
    query = visit.query
    decision, line, status = None, "", 200
    question: dict[str, str] = {}
    if query.get("principal"):
        try:
            decision, question = await _explained(visit, query)
        except ConfigError as error:
            line, status = explain(error), 400
        except OdradekError as error:  # such as a cluster without an authorizer: the question is a good one
            line = explain(error)
    return visit.render(
        "explain.html",
        status,
        active="people",
        tab="explain",
        form=query,
        line=line,
        kinds=list(KIND_WORDS),
        operations=[word for word in OPERATION_WORDS if word != "all"],
        decision=decision,
        question=question,
        **_shapes(),
    )


async def _explained(visit: Visit, query: Mapping[str, str]) -> tuple[AclDecision, dict[str, str]]:
    kind, name = _resource(visit, query)
    operation = OPERATION_WORDS.get(query.get("operation", ""))
    if operation not in OPERATIONS_OF[kind]:
        known = list(map(operation_word, OPERATIONS_OF[kind]))
        raise ConfigError(_wrong_operation(visit, query.get("operation", "")[:50], kind, known))
    host = query.get("host", "").strip() or "127.0.0.1"
    try:
        host = canonical_host(host[:100])
    except ValueError:
        raise ConfigError(visit.catalogue.text("rules.no_address", host=host[:100])) from None
    principal = _principal(visit, query.get("principal", ""))
    (settings,), _ = await reading_of(visit, visit.model.access.settings, _NOTHING)
    known_acls = await visit.run(visit.model.access.acls.get())
    about = [acl for acl in known_acls if acl.pattern.resource_type == kind and acl.pattern.covers(name)]
    decision = AclJudge(about, settings).decide(principal, host, operation, kind, name)
    question = {
        "principal": principal,
        "operation": operation_word(operation),
        "resource": resource_text(AclPattern(kind, name)),
        "host": host,
        "free": (settings or {}).get("allow.everyone.if.no.acl.found", "false"),
    }
    return decision, question


PAGES: Final = (
    ConsolePage(path="/people/rules", show=show),
    ConsolePage(path="/people/rules/new", show=show_new, act=add),
    ConsolePage(path="/people/rules/remove", show=show_remove, act=remove),
    ConsolePage(path="/people/explain", show=show_explain),
)
