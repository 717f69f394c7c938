"""``interlane compile``: compile the hot loops now instead of in the first long run."""

from interlane.cli.output import say


def compile_() -> None:
    """Compile the hot loops now, which takes a minute or two, once.

    Without it, short runs use plain Python, which gives the same digits, the first long run
    compiles, and a server compiles in the background.

    Examples:
    interlane compile
    """
    from interlane.usecases.compiling import compile_all

    functions = compile_all()
    say(f"Compiled {functions} functions." if functions else "All is compiled already.")
