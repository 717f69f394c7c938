"""``python -m interlane`` is the same as ``interlane``."""

from interlane.cli import main

if __name__ == "__main__":
    main()
