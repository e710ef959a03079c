"""The Python that the scripted models write: one cell a question, the second using the first's `samples`."""

CELLS = (
    """\
import numpy as np

samples = np.random.default_rng(7).normal(loc=100, scale=15, size=10_000)
print(f"mean {samples.mean():.2f}, standard deviation {samples.std(ddof=1):.2f}")
""",
    """\
import matplotlib.pyplot as plt

plt.hist(samples, bins=50)
plt.title(f"{samples.size:,} samples")
plt.xlabel("value")
plt.ylabel("samples")
plt.show()
print(f"bell-shaped, {np.mean(abs(samples - 100) < 15):.1%} within one standard deviation")
""",
)
