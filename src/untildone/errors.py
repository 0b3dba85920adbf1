"""Every error untildone raises on purpose, as one tree, grouped by who must act.

UntildoneError                  1  base: never raised itself
├── UsageError                  2  the person typed something that cannot work
│   ├── ConfigError             2  a setting or a settings file is wrong
│   └── RunElsewhere            2  another machine has taken this run over
├── StoreError                  1  the log cannot be read or written
│   ├── LeaseLost               1  another driver took this run over
│   ├── StoreSpoilt             1  the file is damaged, or its tables are not ours any more
│   └── RunBusy                 2  another driver is at work on this run or folder
├── RunNotFound                 2  no such run in this store
├── AgentError                  1  the agent cannot be started or spoken to
│   ├── AgentMissing            2  there is no `claude` to start
│   └── NotLoggedIn             6  Claude Code has neither a login nor a key
├── WorkspaceError              1  git or the folder refused
│   ├── FolderRefused           2  the folder is no place to let an agent work in
│   ├── DirtyWorkspace          2  the user's own uncommitted work is in the way
│   ├── LandingRefused          2  the work could never arrive where it is to go
│   ├── WishRefused             2  what was asked of git cannot be done as it was asked
│   ├── GitLocked               1  a lock file keeps git from writing
│   └── CommitUnfit             1  a commit cannot be examined because of what is in it
├── ForgeError                  1  the forge refused or cannot be reached
│   └── LoginMissing            2  there is no login for the forge
├── UplinkError                 1  the server that keeps a copy of the run
│   ├── UplinkDown              1  does not answer, for now
│   └── UplinkRefused           2  will not have it: wrong token, or another machine has the run
├── ServeError                  1  the server, or its database, cannot work
│   ├── DatabaseStarting        1  the database is starting up, or refuses connections for now
│   └── SenderRefused           1  these events are not the sender's to send
└── NotTheOperator              5  an agent tried to steer its own run
"""

from typing import ClassVar


class UntildoneError(Exception):
    """Base of all errors a person may see: one line saying what is wrong and what to do."""

    exit_code: ClassVar[int] = 1


class UsageError(UntildoneError):
    """The command as typed cannot work."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting, or a settings file, is wrong."""


class RunElsewhere(UsageError):
    """Another machine has taken this run over: here it must not go on."""


class StoreError(UntildoneError):
    """The event log cannot be read or written."""


class LeaseLost(StoreError):
    """Another driver took this run over; whatever we still do must not be recorded as the driver's."""


class StoreSpoilt(StoreError):
    """The store's file is damaged, or its tables were changed: its driver can begin a new one."""


class RunBusy(StoreError):
    """Another living driver holds this run or this folder."""

    exit_code = 2


class NoSandbox(UntildoneError):
    """An agent cannot work in a sandbox here."""

    exit_code = 2


class RunNotFound(UntildoneError):
    """No run of that name or id in this store."""

    exit_code = 2


class AgentError(UntildoneError):
    """The agent cannot be started or spoken to."""


class AgentMissing(AgentError):
    """There is no agent program to start."""

    exit_code = 2


class NotLoggedIn(AgentError):
    """Claude Code has neither a login nor a key."""

    exit_code = 6


class WorkspaceError(UntildoneError):
    """Git or the folder refused."""


class FolderRefused(WorkspaceError):
    """The folder does not exist, or is the home folder, a folder above it, or the whole machine."""

    exit_code = 2


class DirtyWorkspace(WorkspaceError):
    """The user's own uncommitted work is in the folder."""

    exit_code = 2


class LandingRefused(WorkspaceError):
    """What the run makes could never arrive where it is to go."""

    exit_code = 2


class WishRefused(WorkspaceError):
    """A name is taken or no name, there is no git, or the branch it is about is not checked out."""

    exit_code = 2


class GitKilled(WorkspaceError):
    """The process of git was killed (out of memory, by somebody): it may well succeed the next time."""


class GitLocked(WorkspaceError):
    """Another git, or one that died, left a lock file, and nothing can be written there."""


class CommitUnfit(WorkspaceError):
    """A commit cannot be checked out, or not be examined, because of what is in it: whoever made it can mend it."""


class ForgeError(UntildoneError):
    """The forge (GitHub or its like) refused or cannot be reached."""

    def __init__(self, message: str, *, retry_at: float | None = None, lasting: bool = True) -> None:
        super().__init__(message)
        self.retry_at = retry_at
        """Epoch seconds before which a new try is pointless, if the forge said so."""
        self.lasting = lasting
        """Trying again will not help: a human must do something."""


class LoginMissing(ForgeError):
    """There is no login for the forge, or none that can be used."""

    exit_code = 2


class UplinkError(UntildoneError):
    """Something is wrong between a run and the server that keeps a copy of it."""


class UplinkDown(UplinkError):
    """The server does not answer, or says that it cannot at the moment: the same may work later."""

    def __init__(self, message: str, *, seldom: bool = False, status: int = 0) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer; 0 if there was none."""
        self.seldom = seldom
        """Somebody has to make room first: that is nothing to ask for every few seconds."""


class UplinkRefused(UplinkError):
    """The server understood and refuses: somebody has to mend something first."""

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        taken: bool = False,
        too_large: bool = False,
        behind: int | None = None,
        status: int = 0,
    ) -> None:
        super().__init__(message)
        self.status = status
        """The HTTP status of the answer."""
        self.behind = behind
        """The server's tenure of the run, an earlier one than ours: it has forgotten that the run was taken over."""
        self.too_large = too_large
        """Less at a time may be taken."""
        self.taken = taken
        """Another machine has taken the run over."""


class ServeError(UntildoneError):
    """The server cannot work: its database, its address or its settings are in the way."""


class DatabaseStarting(ServeError):
    """The database says that it is starting up, or refuses connections: it may answer soon."""


class NoRoom(ServeError):
    """The disk of the server is nearly full: nothing more is kept until there is room again."""


class SenderRefused(ServeError):
    """Events are not kept: the run is another sandbox's, or a later driver took it over."""

    def __init__(
        self, message: str, *, taken: bool = False, last_seq: int | None = None, behind: int | None = None
    ) -> None:
        super().__init__(message)
        self.behind = behind
        """The tenure of the run, an earlier one than the sender's: this server was put back to an older state."""
        self.taken = taken
        """A later driver has the run: whoever sends this must stop driving it."""
        self.last_seq = last_seq
        """The events do not go on where the copy ends, which is here: send what comes after this."""


class NotTheOperator(UntildoneError):
    """An operator command was given from inside an agent's process tree."""

    exit_code = 5
