"""Percentiles of measured samples."""

from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Summary:
    """Milliseconds, nearest rank."""

    n: int
    p50: float
    p95: float
    p99: float
    worst: float

    @classmethod
    def of(cls, seconds: list[float]) -> "Summary":
        ordered = sorted(seconds)

        def percentile(share: float) -> float:
            rank = max(1, -(-len(ordered) * share // 100))
            return round(1000 * ordered[int(rank) - 1], 3)

        return cls(len(ordered), percentile(50), percentile(95), percentile(99), percentile(100))

    def as_json(self) -> dict:
        return asdict(self)
