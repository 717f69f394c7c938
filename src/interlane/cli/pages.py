"""``interlane pages``: the way into the web pages."""

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.options import takes
from interlane.cli.output import OutputFormat, OutputOption, emit


@takes(ServerOptions)
def pages(*, options: ServerOptions, output: OutputOption = OutputFormat.TABLE) -> None:
    """Print a link that lets one browser into the web pages, within ten minutes."""
    client = ApiClient(options)
    link = client.url + client.post("/pages", {}).document()["path"]
    emit({"link": link}, output, link)
