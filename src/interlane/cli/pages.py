"""``interlane pages``: the way into the web pages."""

from interlane.cli.client import Client, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import Output, OutputOption, emit


@takes(ServerOptions)
def pages(*, options: ServerOptions, output: OutputOption = Output.TABLE) -> None:
    """Print a link that lets one browser into the web pages, within ten minutes."""
    client = Client(options)
    link = client.url + client.post("/pages", {}).document()["path"]
    emit({"link": link}, output, link)
