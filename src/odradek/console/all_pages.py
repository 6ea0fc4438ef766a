"""Every page of the console. A further page is a module here, a template, its texts, and a line in this list."""

from __future__ import annotations

from typing import Final

from odradek.console.pages import (
    audit,
    certificates,
    cluster,
    dead_letters,
    group_changes,
    groups,
    login,
    oidc_login,
    overview,
    pipeline_upgrade,
    pipelines,
    preferences,
    produce,
    quotas,
    records,
    rules,
    topic,
    topic_changes,
    topics,
    traffic,
    transactions,
    users,
)
from odradek.console.pages.sql import editor as sql_editor
from odradek.console.pages.sql import login as sql_login
from odradek.console.pages.sql import sources as sql_sources
from odradek.console.web.application import ConsolePage

PAGES: Final[tuple[ConsolePage, ...]] = (
    *overview.PAGES,
    *topics.PAGES,
    *topic_changes.PAGES,
    *produce.PAGES,
    *records.PAGES,
    *topic.PAGES,
    *group_changes.PAGES,
    *groups.PAGES,
    *transactions.PAGES,
    *dead_letters.PAGES,
    *cluster.PAGES,
    *users.PAGES,
    *rules.PAGES,
    *quotas.PAGES,
    *audit.PAGES,
    *certificates.PAGES,
    *traffic.PAGES,
    *pipelines.PAGES,
    *pipeline_upgrade.PAGES,
    *sql_sources.PAGES,
    *sql_editor.PAGES,
    *sql_login.PAGES,
    *login.PAGES,
    *oidc_login.PAGES,
    *preferences.PAGES,
)
"""The first that matches a path answers it."""
