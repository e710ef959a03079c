"""numpy's generators. Their types can be neither changed nor replaced, so living ones are searched for.

Whether one was seeded is told by a mark in the entropy that it gets when it is given none.
"""

from __future__ import annotations

import functools
import gc
import secrets
from typing import Any

#: What marks entropy as drawn and not given: bits that are computed from the others.
_MARK_BITS = 32
_MARK_KEY = secrets.randbits(64)


class Numpy:
    """What is known of them, and how they are seeded anew."""

    def __init__(self, module: Any) -> None:
        self._module = module
        self._legacy = module.mtrand._rand
        #: Of the one behind `numpy.random.rand` and its like, which was made at the import.
        self._first_sequence = self._bits_of(self._legacy)._seed_seq
        self._legacy_is_seeded = False
        #: Unseeded ones that the garbage collector does not list.
        self.hidden: list[Any] = []
        #: Whether there may be others. To look for them takes 0.1 s for a million objects.
        self._has_drawn = True
        self._mark_drawn_entropy()
        self._note_seeding()

    @staticmethod
    def _bits_of(generator: Any) -> Any:
        return generator._bit_generator

    def _mark_drawn_entropy(self) -> None:
        draw = self._module.bit_generator.randbits

        def marked(bits: int) -> int:
            self._has_drawn = True
            drawn = draw(bits)
            return drawn << _MARK_BITS | _mark(drawn)

        self._module.bit_generator.randbits = marked

    def _note_seeding(self) -> None:
        seed, set_state = self._module.seed, self._module.set_state

        @functools.wraps(seed)
        def noted_seed(seed_value: Any = None) -> None:
            seed(seed_value)
            self._legacy_is_seeded = seed_value is not None

        @functools.wraps(set_state)
        def noted_set_state(state: Any) -> None:
            set_state(state)
            self._legacy_is_seeded = True

        for module in (self._module, self._module.mtrand):
            module.seed, module.set_state = noted_seed, noted_set_state

    def hide(self) -> None:
        """Keeps the unseeded ones that there are, which are about to be hidden from a search."""
        self.hidden, self._has_drawn = self.unseeded(), False

    def unseeded(self) -> list[Any]:
        """Everything in reach that got its entropy from the system: sequences of seeds, bit generators, and those of the old kind."""
        if not self._has_drawn:
            return []
        kinds = (self._module.SeedSequence, self._module.bit_generator.BitGenerator, self._module.RandomState)
        return [found for found in gc.get_objects() if isinstance(found, kinds) and self._is_unseeded(found)]

    def reseed(self) -> None:
        """Gives the unseeded ones new states."""
        has_drawn = self._has_drawn
        found = {id(one): one for one in [*self.hidden, *self.unseeded()]}
        legacy, legacy_bits = self._legacy, self._bits_of(self._legacy)
        for one in (legacy, legacy_bits):
            found.pop(id(one), None)
            if not self._legacy_is_seeded and (legacy_bits._seed_seq is None or self._is_drawn(legacy_bits._seed_seq)):
                found[id(one)] = one
        for one in found.values():
            if isinstance(one, self._module.RandomState):
                # A second normal number is kept from the drawing of the first.
                one.set_state(one.get_state(legacy=False) | {"has_gauss": 0, "gauss": 0.0})
            elif isinstance(one, self._module.SeedSequence):
                one.__setstate_cython__(type(one)(pool_size=one.pool_size).__reduce__()[2])
            else:
                _reseed_bits(one)
        self._has_drawn = has_drawn

    def _is_unseeded(self, found: Any) -> bool:
        if isinstance(found, self._module.SeedSequence):
            return self._is_drawn(found)
        bits = self._bits_of(found) if isinstance(found, self._module.RandomState) else found
        return self._is_drawn(bits._seed_seq)

    def _is_drawn(self, sequence: Any) -> bool:
        if sequence is self._first_sequence and sequence is not None:
            return True
        entropy = getattr(sequence, "entropy", None)
        return isinstance(entropy, int) and entropy & (1 << _MARK_BITS) - 1 == _mark(entropy >> _MARK_BITS)


def _reseed_bits(bits: Any) -> None:
    fresh = type(bits)()
    if isinstance(bits.__reduce__()[2], tuple):
        # With the sequence that its children are spawned from, which numpy 1 does not let one replace.
        bits.__setstate__((fresh.state, fresh._seed_seq))
    else:
        bits.state = fresh.state


def _mark(drawn: int) -> int:
    return hash((_MARK_KEY, drawn)) & (1 << _MARK_BITS) - 1
