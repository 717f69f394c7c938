import numpy as np
import pytest

from interlane.model import UnknownName
from interlane.predict.cart import KEYS, Cart
from interlane.predict.estimates import EstimateBasis
from interlane.testing.runs import recurring, runs


def test_a_leaf_answers_the_middle_of_its_runs() -> None:
    known = runs([10, 12, 20, 1000, 1100, 1600], group=["a"] * 3 + ["b"] * 3)

    told = Cart(depth=1).fit(known).predict(runs([1, 1], group=["a", "b"]))

    assert told.seconds == pytest.approx([12, 1100])
    assert [EstimateBasis(one) for one in told.basis] == [EstimateBasis.GROUP] * 2


def test_keys_decide_what_a_tree_may_look_at() -> None:
    known = runs([10, 10, 500, 500], group=["a", "a", "b", "b"])
    asked = runs([1, 1], group=["a", "b"])

    assert Cart("group+user").fit(known).predict(asked).seconds == pytest.approx([10, 500])
    by_user = Cart("user").fit(known).predict(asked)
    assert by_user.seconds[0] == by_user.seconds[1]


def test_more_keys_tell_more_where_they_matter() -> None:
    many = recurring(3_000, seed=3)
    known, rest = many.take(np.arange(2_400)), many.take(np.arange(2_400, 3_000))

    off_s = [
        float(np.abs(Cart(keys).fit(known).predict(rest).seconds - rest.duration_s).mean())
        for keys in ("user", "group+user")
    ]

    assert off_s[1] < 0.8 * off_s[0]


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(UnknownName, match=r"set of keys 'group' is not known"):
        Cart("group")
    assert all(Cart(keys).keys == keys for keys in KEYS)
