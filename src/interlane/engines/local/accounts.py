"""As whom jobs run: with root, as the account that the name of a token is mapped to.

The mapping is a file of the operator's, read when the server starts:

    ann: ann          # the token's name: an account of this machine
    bob: 60002        # or its number

Without root, all jobs run as the server does, and whoever may submit can do what it can.  With
root and without a mapping that is everything; so nobody but admins may submit then, unless the
operator says that users are trusted.
"""

import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import yaml

from interlane.live.auth import Denied
from interlane.model import InvalidField, InvalidInput

WORK: Final = Path("/var/lib/interlane/work")
"""Where jobs of other accounts have their folders: they cannot reach the server's own."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account of this machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str | None = None


@dataclass(frozen=True, slots=True)
class Accounts:
    """Who runs as whom."""

    mapped: Mapping[str, Account] = field(default_factory=dict)
    """By the name of a token."""
    trusts_users: bool = True
    """Whether users may submit who have no account of their own."""
    work: Path = WORK

    def of(self, user: str) -> Account | None:
        """Return as whom a user's jobs run; None for the server's own account."""
        return self.mapped.get(user)

    def check(self, user: str, *, is_admin: bool) -> None:
        """Refuse users whose jobs would run as root."""
        if not (self.trusts_users or is_admin or user in self.mapped):
            raise Denied(
                f"This server runs as root, and {user!r} has no account of its own here; ask "
                "an operator to add one to the file of 'interlane up --accounts', or to start "
                "it with --trust-users."
            )

    def check_function(self, *, is_admin: bool) -> None:
        """Refuse functions of users: they run as the server's own account."""
        if not (self.trusts_users or is_admin):
            raise Denied(
                "Functions run as the server does, which is root; only admins may deploy them, "
                "unless an operator starts it with --trust-users."
            )

    def prepare(self) -> None:
        """Make the folder of the folders of jobs; accounts may pass through, and no more."""
        if not self.mapped:
            return
        self.work.mkdir(parents=True, exist_ok=True, mode=0o711)
        self.work.chmod(0o711)
        for folder in (self.work, *self.work.parents):
            if not folder.stat().st_mode & stat.S_IXOTH:
                raise InvalidInput(
                    f"Jobs of other accounts cannot reach {self.work}, because {folder} is "
                    "closed to them; name another folder with --work."
                )


def accounts_of(file: Path | None, *, trusts_users: bool, work: Path | None) -> Accounts:
    """Return who runs as whom on a server that this process is."""
    is_root = os.getuid() == 0
    if file is not None and not is_root:
        rule = "only a server that runs as root can run jobs as other accounts"
        raise InvalidField("accounts", str(file), rule)
    mapped = {} if file is None else _mapped(file)
    return Accounts(mapped, trusts_users or not is_root, work or WORK)


def _mapped(file: Path) -> dict[str, Account]:
    seen = file.stat() if file.is_file() else None
    if seen is None:
        raise InvalidField("accounts", str(file), "there is no such file")
    if seen.st_uid != 0 or seen.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        rule = "it must be root's, and nobody else may write to it"
        raise InvalidField("accounts", str(file), rule)
    try:
        said = yaml.safe_load(file.read_text())
    except yaml.YAMLError as error:
        raise InvalidInput(f"{file} cannot be read as YAML: {error}") from None
    if not isinstance(said, dict):
        rule = "it must have lines such as 'ann: ann', the name of a token and an account"
        raise InvalidField("accounts", str(file), rule)
    return {str(user): _account(f"{file}: {user}", named) for user, named in said.items()}


def _account(field_name: str, named: object) -> Account:
    if isinstance(named, bool) or not isinstance(named, int | str):
        raise InvalidField(field_name, named, "it must be an account of this machine")
    try:
        entry = pwd.getpwuid(named) if isinstance(named, int) else pwd.getpwnam(named)
    except (KeyError, OverflowError):
        entry = None
    if entry is not None:
        if entry.pw_uid == 0:
            raise InvalidField(field_name, named, "jobs never run as root for a user")
        groups = tuple(os.getgrouplist(entry.pw_name, entry.pw_gid))
        return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir)
    if not isinstance(named, int) or not 0 < named < 1 << 31:
        raise InvalidField(field_name, named, "it must be an account of this machine")
    return Account(str(named), named, named, ())
