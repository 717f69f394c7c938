"""``interlane usage``: who had how much of the GPUs."""

from enum import StrEnum
from typing import Annotated, Final

import typer

from interlane.cli.client import ApiClient, ServerOptions
from interlane.cli.listing import (
    ListColumn,
    ListFormat,
    Listing,
    ListOption,
    NoHeadersOption,
    Row,
)
from interlane.cli.moments import NONE
from interlane.cli.options import takes
from interlane.model.amounts import seconds

DAY_S: Final = 86_400.0


class UsageAccount(StrEnum):
    """By what use is summed up."""

    USER = "user"
    QUEUE = "queue"


@takes(ServerOptions)
def usage(
    *,
    since: Annotated[
        str, typer.Option(metavar="SPAN", help="How far back, as in 24h or 7d.")
    ] = "7d",
    by: Annotated[
        UsageAccount, typer.Option(help="Whose use is summed up.")
    ] = UsageAccount.USER,
    no_headers: NoHeadersOption = False,
    options: ServerOptions,
    output: ListOption = ListFormat.TABLE,
) -> None:
    """Show who had how much of the GPUs: GPU-hours held, used and wasted.

    Used is the part in which an iteration ran, where that was measured; wasted is what failed,
    was cancelled or was lost since the last checkpoint.

    Examples:
      interlane usage
      interlane usage --since 30d --by queue -o csv
    """
    days = seconds("--since", since) / DAY_S
    found = ApiClient(options).get("/usage", days=days, by=by.value).document()
    rows = found["usage"]
    if rows and output in (ListFormat.TABLE, ListFormat.WIDE):
        rows = [*rows, {**found["total"], "account": "in all"}]
    nothing = f"Nobody held a GPU in the last {since}."
    listing = Listing("usage", _columns(by), rows, nothing, name="account")
    listing.show(output, no_headers=no_headers)


def _columns(by: UsageAccount) -> tuple[ListColumn, ...]:
    def hours(head: str, key: str) -> ListColumn:
        return ListColumn(
            head, lambda row: f"{row[key]:,.2f}", lambda row: row[key], is_right=True
        )

    return (
        ListColumn(by.value, lambda row: row["account"], lambda row: row["account"]),
        ListColumn(
            "jobs", lambda row: f"{row['jobs']:,}", lambda row: row["jobs"], is_right=True
        ),
        hours("held GPU-h", "held_h"),
        ListColumn("used GPU-h", _used, lambda row: row["used_h"], is_right=True),
        ListColumn("busy", _busy, lambda row: row["measured_h"], is_right=True),
        hours("wasted GPU-h", "wasted_h"),
        hours("waited h", "waited_h"),
    )


def _used(row: Row) -> str:
    return f"{row['used_h']:,.2f}" if row["measured_h"] else NONE


def _busy(row: Row) -> str:
    return f"{row['used_h'] / row['measured_h']:.0%}" if row["measured_h"] else NONE
