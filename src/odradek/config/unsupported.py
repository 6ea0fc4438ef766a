"""Kafka's settings that this version knows by name and ignores.

A `server.properties` that holds one still works, with a warning that names it and what is missing. When a
feature arrives, its settings move from here to a field of `BrokerConfig`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from odradek.config.definition import DynamicUpdate, Setting, SettingType


class Area(NamedTuple):
    """Settings that have no effect for one reason."""

    name: str
    reason: str
    keys: str
    """Separated by white space."""


NOT_YET: Final = "is not supported yet and has no effect"

AREAS: Final = (
    Area(
        name="Kerberos",
        reason="has no effect: Kerberos' library gets new tickets when it needs them",
        keys="""
        sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.ticket.renew.jitter
        sasl.kerberos.ticket.renew.window.factor
        """,
    ),
    Area(
        name="When a broker's own token is renewed",
        reason="has no effect: it is when a fifth of the token's time is left",
        keys="""
        sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
        sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
        """,
    ),
    Area(
        name="Other ways to a broker's own token",
        reason=f"{NOT_YET}: brokers get their tokens by id and secret",
        keys="""
        sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
        sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
        sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
        sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
        sasl.oauthbearer.assertion.private.key.file sasl.oauthbearer.assertion.private.key.passphrase
        sasl.oauthbearer.assertion.template.file
        sasl.oauthbearer.allow.unverified.audience sasl.oauthbearer.allow.unverified.issuer
        """,
    ),
    Area(
        name="Java's classes of TLS and SASL",
        reason="has no effect: it names a part of Java",
        keys="""
        sasl.client.callback.handler.class sasl.login.callback.handler.class sasl.login.class
        sasl.mechanism.controller.protocol sasl.oauthbearer.jwt.retriever.class
        sasl.oauthbearer.jwt.validator.class sasl.server.callback.handler.class security.providers
        ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation
        ssl.trustmanager.algorithm
        """,
    ),
    Area(
        name="The name of TLS",
        reason="has no effect: ssl.enabled.protocols says which versions are spoken",
        keys="ssl.protocol",
    ),
    Area(
        name="The older name of the key of delegation tokens",
        reason="has no effect: it is called delegation.token.secret.key since Kafka 3.0",
        keys="delegation.token.master.key",
    ),
    Area(
        name="Policies",
        reason=NOT_YET,
        keys="""
        alter.config.policy.class.name create.topic.policy.class.name early.start.listeners
        """,
    ),
    Area(
        name="Consumer groups and their offsets",
        reason=NOT_YET,
        keys="""
        group.consumer.assignor.offload.enable group.consumer.regex.refresh.interval.ms
        group.coordinator.append.linger.ms
        group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
        group.coordinator.new.enable group.coordinator.rebalance.protocols group.coordinator.threads
        offsets.load.buffer.size
        offsets.topic.compression.codec
        """,
    ),
    Area(
        name="Share groups",
        reason=NOT_YET,
        keys="""
        errors.deadletterqueue.auto.create.topics.enable errors.deadletterqueue.topic.name.prefix
        group.share.assignor.offload.enable group.share.assignors group.share.dlq.manager.class.name
        group.share.enable group.share.initialize.retry.interval.ms group.share.max.groups
        group.share.persister.class.name share.coordinator.append.linger.ms
        share.coordinator.cached.buffer.max.bytes share.coordinator.load.buffer.size
        share.coordinator.state.topic.compression.codec share.coordinator.threads
        share.coordinator.write.timeout.ms share.fetch.purgatory.purge.interval.requests
        """,
    ),
    Area(
        name="Streams groups",
        reason=NOT_YET,
        keys="""
        group.streams.assignor.offload.enable group.streams.max.warmup.replicas
        group.streams.num.warmup.replicas group.streams.topology.description.plugin.class
        """,
    ),
    Area(
        name="Transactions",
        reason=NOT_YET,
        keys="""
        transaction.state.log.load.buffer.size
        """,
    ),
    Area(
        name="More than one broker",
        reason=NOT_YET,
        keys="""
        broker.heartbeat.interval.ms
        controlled.shutdown.enable controlled.shutdown.max.retries controlled.shutdown.retry.backoff.ms
        controller.socket.timeout.ms cordoned.log.dirs follower.fetch.last.tiered.offset.enable
        initial.broker.registration.timeout.ms
        log.dir.failure.timeout.ms num.replica.alter.log.dirs.threads
        replica.socket.receive.buffer.bytes
        request.timeout.ms socket.connection.setup.timeout.max.ms
        socket.connection.setup.timeout.ms unclean.leader.election.interval.ms
        """,
    ),
    Area(
        name="Revoked certificates of ZooKeeper",
        reason=f"{NOT_YET}: no one looks whether a certificate was revoked",
        keys="zookeeper.ssl.crl.enable zookeeper.ssl.ocsp.enable",
    ),
    Area(
        name="KRaft",
        reason="has no effect: brokers are not coordinated by a KRaft quorum",
        keys="""
        controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
        controller.quorum.append.linger.ms controller.quorum.auto.join.enable
        controller.quorum.bootstrap.servers controller.quorum.election.backoff.max.ms
        controller.quorum.election.timeout.ms controller.quorum.fetch.max.bytes
        controller.quorum.fetch.snapshot.max.bytes controller.quorum.fetch.timeout.ms
        controller.quorum.request.timeout.ms controller.quorum.retry.backoff.ms controller.quorum.voters
        internal.metadata.delete.delay.millis internal.metadata.log.segment.bytes
        internal.metadata.max.batch.size.in.bytes metadata.log.dir
        metadata.log.max.record.bytes.between.snapshots metadata.log.max.snapshot.interval.ms
        metadata.log.segment.bytes metadata.log.segment.ms metadata.log.segment.min.bytes
        metadata.max.idle.interval.ms metadata.max.retention.bytes metadata.max.retention.ms process.roles
        server.max.startup.time.ms unstable.feature.versions.enable
        """,
    ),
    Area(
        name="Tiered storage",
        reason="has no effect: there is no tiered storage",
        keys="""
        remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms
        remote.log.index.file.cache.total.size.bytes remote.log.index.file.cache.ttl.ms
        remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
        remote.log.manager.copy.quota.window.num remote.log.manager.copy.quota.window.size.seconds
        remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
        remote.log.manager.fetch.quota.window.num remote.log.manager.fetch.quota.window.size.seconds
        remote.log.manager.follower.thread.pool.size remote.log.manager.task.interval.ms
        remote.log.manager.task.retry.backoff.max.ms remote.log.manager.task.retry.backoff.ms
        remote.log.manager.task.retry.jitter remote.log.manager.thread.pool.size
        remote.log.metadata.custom.metadata.max.bytes remote.log.metadata.manager.class.name
        remote.log.metadata.manager.class.path remote.log.metadata.manager.impl.prefix
        remote.log.metadata.manager.listener.name remote.log.reader.max.pending.tasks
        remote.log.reader.threads remote.log.storage.manager.class.name
        remote.log.storage.manager.class.path remote.log.storage.manager.impl.prefix
        remote.log.storage.system.enable
        """,
    ),
    Area(
        name="Quotas of replication",
        reason=NOT_YET,
        keys="""
        alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
        client.quota.callback.class
        quota.consumer.default quota.producer.default replica.alter.log.dirs.io.max.bytes.per.second
        """,
    ),
    Area(
        name="Metrics",
        reason=NOT_YET,
        keys="""
        auto.include.jmx.reporter kafka.metrics.polling.interval.secs kafka.metrics.reporters
        metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
        """,
    ),
    Area(
        name="The pace of background work",
        reason="has no effect: this broker has a pace of its own",
        keys="""
        log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms
        num.recovery.threads.per.data.dir producer.id.expiration.check.interval.ms
        replica.high.watermark.checkpoint.interval.ms
        """,
    ),
    Area(
        name="Java's ways",
        reason="has no effect: it tunes what only Kafka's Java broker has",
        keys="""
        background.threads delete.records.purgatory.purge.interval.requests
        fetch.purgatory.purge.interval.requests num.network.threads
        producer.purgatory.purge.interval.requests
        """,
    ),
    Area(
        name="Gone from Kafka",
        reason="has no effect: Kafka itself dropped it",
        keys="""
        advertised.host.name advertised.port broker.id.generation.enable
        host.name inter.broker.protocol.version log.message.downconversion.enable log.message.format.version
        log.message.timestamp.difference.max.ms offsets.commit.required.acks
        password.encoder.cipher.algorithm password.encoder.iterations password.encoder.key.length
        password.encoder.keyfactory.algorithm password.encoder.old.secret password.encoder.secret port
        reserved.broker.max.id zookeeper.metadata.migration.enable zookeeper.sync.time.ms
        """,
    ),
)

_FOR_ALL: Final = """
    background.threads errors.deadletterqueue.auto.create.topics.enable
    errors.deadletterqueue.topic.name.prefix follower.fetch.last.tiered.offset.enable
    group.consumer.assignor.offload.enable group.coordinator.cached.buffer.max.bytes
    group.share.assignor.offload.enable group.streams.assignor.offload.enable
    metric.reporters num.network.threads
    num.recovery.threads.per.data.dir remote.fetch.max.wait.ms
    remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second share.coordinator.cached.buffer.max.bytes
"""
DYNAMIC_FOR_ALL: Final = frozenset(_FOR_ALL.split())
"""Unsupported settings of which Kafka's running brokers take a new value, for one broker or for all: it is kept here, too."""

_FOR_ONE: Final = """
    cordoned.log.dirs principal.builder.class
    sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter
    ssl.engine.factory.class
    ssl.keymanager.algorithm ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm
"""
DYNAMIC_PER_BROKER: Final = frozenset(_FOR_ONE.split())
"""The same, for one broker only."""

INSTEAD: Final = {
    "host.name": "listeners",
    "port": "listeners",
    "advertised.host.name": "advertised.listeners",
    "advertised.port": "advertised.listeners",
    "log.message.timestamp.difference.max.ms": "log.message.timestamp.before.max.ms and ...after.max.ms",
}
"""The replacement for each setting that Kafka dropped."""

FOREIGN_PREFIXES: Final = {
    "confluent.": "belongs to Confluent Platform and has no effect",
    "metrics.context.": NOT_YET,
    "rsm.config.": "has no effect: there is no tiered storage",
    "rlmm.config.": "has no effect: there is no tiered storage",
    "controller.quorum.": "has no effect: brokers are not coordinated by a KRaft quorum",
}
"""Families of keys that no table can list."""

_SECRET_ENDINGS: Final = (
    "password",
    "passphrase",
    "secret",
    ".secret.key",
    ".master.key",
    "jaas.config",
    "keystore.key",
    "certificates",
    "certificate.chain",
)


def is_secret(key: str) -> bool:
    """Returns whether the value of this key (known or not) must be hidden."""
    return key.endswith(_SECRET_ENDINGS)


def _dynamic(key: str) -> DynamicUpdate:
    if key in DYNAMIC_PER_BROKER:
        return DynamicUpdate.PER_BROKER
    return DynamicUpdate.CLUSTER_WIDE if key in DYNAMIC_FOR_ALL else DynamicUpdate.READ_ONLY


def unsupported_settings() -> list[tuple[Setting, str]]:
    """Returns every setting of `AREAS`, with the words that its warning ends in."""
    listed = []
    for area in AREAS:
        for key in area.keys.split():
            type_ = SettingType.PASSWORD if is_secret(key) else SettingType.STRING
            instead = f"; use {INSTEAD[key]}" if key in INSTEAD else ""
            setting = Setting(
                key=key,
                type=type_,
                default=None,
                meaning=area.name,
                dynamic=_dynamic(key),
                effective=False,
            )
            listed.append((setting, area.reason + instead))
    return listed
