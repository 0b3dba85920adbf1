"""The seams: what the engine needs from the world, as small Protocols. Adapters live in the other rooms."""

from untildone.ports.record import EventLog as EventLog
from untildone.ports.record import Lease as Lease
from untildone.ports.record import RunRow as RunRow
from untildone.ports.running import Agent as Agent
from untildone.ports.running import Clock as Clock
from untildone.ports.running import LastWords as LastWords
from untildone.ports.running import Ledger as Ledger
from untildone.ports.running import Passed as Passed
from untildone.ports.running import Process as Process
from untildone.ports.running import Sandbox as Sandbox
from untildone.ports.running import Spawner as Spawner
from untildone.ports.running import Tell as Tell
from untildone.ports.running import Usher as Usher
from untildone.ports.running import Watcher as Watcher
from untildone.ports.uplink import Parcel as Parcel
from untildone.ports.uplink import Uplink as Uplink
from untildone.ports.workspace import Obstacle as Obstacle
from untildone.ports.workspace import Prepared as Prepared
from untildone.ports.workspace import Resumption as Resumption
from untildone.ports.workspace import Settled as Settled
from untildone.ports.workspace import Sight as Sight
from untildone.ports.workspace import TreeState as TreeState
from untildone.ports.workspace import Workspace as Workspace
from untildone.ports.world import Machine as Machine
from untildone.ports.world import MachineFacts as MachineFacts
from untildone.ports.world import Notifier as Notifier
