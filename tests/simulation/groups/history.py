"""What a group in simulation was seen to do, and whether that may be.

- A partition has one owner in a generation; a member that asks after a generation was assigned is not given an older one.
- What was committed and acknowledged is found again, unless something newer is. Commits of an older generation never are.
- A commit that was sent after a newer generation was assigned is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from odradek.testing.sim.failures import ViolationError

NOTHING = -1


@dataclass(slots=True, kw_only=True)
class SentCommit:
    """One attempt to commit. No two have the same offset, so that what is found tells which one it was."""

    partition: int
    offset: int
    generation: int
    newest_generation: int
    """The newest that was known to be assigned when it was sent."""
    number_of_ack: int | None = None
    is_refused: bool = False


@dataclass(slots=True)
class GroupHistory:
    """Of one group."""

    owners: dict[tuple[int, int], str] = field(default_factory=dict)
    newest_generation: int = -1
    commits: dict[int, list[SentCommit]] = field(default_factory=dict)
    acks: int = 0

    def assigned(self, member: str, generation: int, partitions: list[int], asked_at: int) -> None:
        """`asked_at`: the newest generation when the member asked."""
        if generation < asked_at:
            raise ViolationError(f"{member} was given generation {generation} after {asked_at} was assigned")
        self.newest_generation = max(self.newest_generation, generation)
        for partition in partitions:
            owner = self.owners.setdefault((generation, partition), member)
            if owner != member:
                raise ViolationError(
                    f"partition {partition} has two owners in generation {generation}: {owner}, {member}"
                )

    def sends(self, partition: int, generation: int) -> SentCommit:
        """The next commit of a partition: what it says, and that it may now happen."""
        sent = self.commits.setdefault(partition, [])
        commit = SentCommit(
            partition=partition,
            offset=len(sent),
            generation=generation,
            newest_generation=self.newest_generation,
        )
        sent.append(commit)
        return commit

    def acknowledged(self, commit: SentCommit) -> None:
        if commit.generation < commit.newest_generation:
            raise ViolationError(
                f"a commit in generation {commit.generation} was accepted after {commit.newest_generation} was assigned"
            )
        self.acks += 1
        commit.number_of_ack = self.acks

    def latest(self, partition: int) -> SentCommit | None:
        """The commit that was acknowledged last: what a fetch that begins now must at least find."""
        acked = [commit for commit in self.commits.get(partition, ()) if commit.number_of_ack is not None]
        return max(acked, key=lambda tenure: tenure.number_of_ack or 0, default=None)

    def found(self, partition: int, offset: int, latest: SentCommit | None) -> None:
        """A fetch that began when `latest` was the last acknowledged found `offset`."""
        if latest is None and offset == NOTHING:
            return
        sent = self.commits.get(partition, [])
        if not 0 <= offset < len(sent):
            raise ViolationError(f"partition {partition}: no one committed {offset}, {_said(latest)} was")
        commit = sent[offset]
        if commit.is_refused:
            raise ViolationError(f"partition {partition}: {offset} is committed, but was refused")
        if latest is None or commit is latest:
            return
        older = commit.number_of_ack is not None and commit.number_of_ack < (latest.number_of_ack or 0)
        if older or commit.generation < latest.generation:
            raise ViolationError(
                f"partition {partition}: {_said(latest)} was acknowledged and is gone, {_said(commit)} is back"
            )


def _said(commit: SentCommit | None) -> str:
    return "nothing" if commit is None else f"{commit.offset} (generation {commit.generation})"
