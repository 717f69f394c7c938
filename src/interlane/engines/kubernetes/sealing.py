"""Shows who wrote an annotation: only the scheduler and its nodes know the key.

The key lies in a Secret of the scheduler's namespace.  A seal covers the pod's uid and node, so
that what was written for one pod says nothing on another.
"""

import hmac
from collections.abc import Mapping
from typing import Final

from interlane.engines.kubernetes.annotations import BOUND, SEAL

SECRET: Final = "interlane-seal"
"""The name of the Secret."""
FIELD: Final = "key"
KEY_BYTES: Final = 32


def seal_of(key: bytes, uid: str, node: str, annotations: Mapping[str, str]) -> str:
    """Return what goes with annotations of a pod on a node."""
    said = [uid, node, *(annotations.get(name, "") for name in BOUND if name != SEAL)]
    return hmac.digest(key, "\0".join(said).encode(), "sha256").hex()


def is_sealed(key: bytes, uid: str, node: str, annotations: Mapping[str, str]) -> bool:
    """Tell whether the scheduler wrote them, for this pod and this node."""
    found = annotations.get(SEAL, "")
    return hmac.compare_digest(found, seal_of(key, uid, node, annotations))
