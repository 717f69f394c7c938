from interlane.api.run import Comparison as Comparison
from interlane.api.run import Simulation as Simulation
from interlane.api.run import compare as compare
from interlane.api.run import simulate as simulate
from interlane.client.aio import AsyncClient as AsyncClient
from interlane.client.aio import AsyncLiveJob as AsyncLiveJob
from interlane.client.client import Client as Client
from interlane.client.client import LiveJob as LiveJob
from interlane.model.errors import InterlaneError as InterlaneError
from interlane.model.errors import InvalidInput as InvalidInput
from interlane.model.errors import Unreachable as Unreachable

__version__: str
__all__: list[str]
