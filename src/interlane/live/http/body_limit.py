"""Bodies of requests have a bound."""

from collections.abc import Mapping


def length_of(headers: Mapping[bytes, bytes], bytes_max: int) -> int | str:
    """Return the length of a body, or why it is not read."""
    length = headers.get(b"content-length", b"0")
    is_chunked = b"transfer-encoding" in headers
    if is_chunked or not length.isdigit() or int(length) > bytes_max:
        return f"Bodies have a Content-Length of at most {bytes_max} bytes."
    return int(length)
