"""All kernels of sealed rounds (docs/sealed.md), as `kernels.sealed()` loads them."""

from secfc.coding._sealed_forms import (
    count_lanes,
    cross_forms,
    keep_negated,
    list_pairs,
    list_rivals,
    pair_digits,
    pick_shares,
    place,
    select_shares,
    sort_by_lanes,
    turned_masks,
    value_digits,
)
from secfc.coding._sealed_streams import clean, remainders
from secfc.coding._sealed_tests import answer_tests, count_shares, deal_digits, find_zeros

__all__ = [
    "answer_tests",
    "clean",
    "count_lanes",
    "count_shares",
    "cross_forms",
    "deal_digits",
    "find_zeros",
    "keep_negated",
    "list_pairs",
    "list_rivals",
    "pair_digits",
    "pick_shares",
    "place",
    "remainders",
    "select_shares",
    "sort_by_lanes",
    "turned_masks",
    "value_digits",
]
