"""What conformance suites raise."""


class ContractBroken(AssertionError):
    """A clause of a contract was broken."""

    def __init__(self, clause: str, what: str) -> None:
        super().__init__(f"{clause}: {what}")
        self.clause = clause


def demand(holds: object, clause: str, what: str) -> None:
    """Raise unless a clause holds."""
    if not holds:
        raise ContractBroken(clause, what)
