"""Has the queue become slower? Ratios to a floor that runs beside it, against the ratios that were stored.

Ours and the floor of plain SQL take turns on one server, and each repetition gives a ratio of the two: what the machine
does to one it does to the other. A median that is worse than the stored ratio by more than its tolerance is exit 1.
After a change that was meant: `--store`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks import bed as beds
from benchmarks.peers.__main__ import installed, measured
from benchmarks.peers.catalog import FLOOR, OURS
from benchmarks.peers.running import Sizes
from benchmarks.peers.tables import COLUMNS, Figures

STORED: Final = Path(__file__).resolve().parent / "ratios.json"
PARTS: Final = ("single", "bulk", "drain1", "drain2")
TOLERANCES: Final = {  # of rates, which drift; of bytes, which do not
    "single": 0.25,
    "bulk": 0.25,
    "drain1": 0.2,
    "drain2": 0.2,
    "bulk_wal": 0.1,
    "drain1_wal": 0.1,
}
LESS_IS_BETTER: Final = {"bulk_wal", "drain1_wal"}


@dataclass(frozen=True, slots=True)
class Finding:
    """One figure of ours as a multiple of the floor's, now and as it was stored."""

    figure: str
    stored: float
    now: float
    tolerance: float

    @property
    def is_worse(self) -> bool:
        return self._change < -self.tolerance

    @property
    def is_better(self) -> bool:
        return self._change > self.tolerance

    @property
    def _change(self) -> float:
        """How much better, as a share of what was stored; negative: worse."""
        change = self.now / self.stored - 1
        return -change if self.figure in LESS_IS_BETTER else change

    def __str__(self) -> str:
        word = "WORSE" if self.is_worse else "better: store it" if self.is_better else "as stored"
        figures = f"{self.now:.3f} × the floor, stored {self.stored:.3f} ± {self.tolerance:.0%}"
        return f"{COLUMNS[self.figure]}: {figures}: {word}"


def ratios(ours: Sequence[Figures], floor: Sequence[Figures]) -> dict[str, float]:
    """The median over repetitions of what ours was of the floor, by figure."""
    both = list(zip(ours, floor, strict=True))
    return {
        name: median(one[name] / other[name] for one, other in both)
        for name in TOLERANCES
        if all(name in one and other.get(name) for one, other in both)
    }


def compared(stored: Mapping[str, Mapping[str, float]], now: Mapping[str, float]) -> list[Finding]:
    """A finding for each stored figure that was measured. Raises KeyError for one that was not."""
    return [Finding(name, one["ratio"], now[name], one["tolerance"]) for name, one in stored.items()]


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.regress", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5, help="default 5")
    parser.add_argument("--scale", type=float, default=0.5, help="of the jobs of a full run, default 0.5")
    parser.add_argument("--store", action="store_true", help="take today's ratios for those to compare with")
    asked = parser.parse_args()
    if asked.repetitions < 1 or asked.scale <= 0:
        parser.error("there must be something to do")
    with beds.bed() as bed:
        runners, _ = installed(bed, [OURS, FLOOR], Sizes(scale=asked.scale))
        result = measured(bed, runners, asked.repetitions, PARTS)
    if result["failures"]:
        sys.exit("\n".join(f"{name} failed: {why}" for name, why in result["failures"].items()))
    now = ratios(result["figures"][OURS], result["figures"][FLOOR])
    if asked.store:
        text = {
            name: {"ratio": round(ratio, 3), "tolerance": TOLERANCES[name]} for name, ratio in now.items()
        }
        STORED.write_text(json.dumps(text, indent=1) + "\n")
    findings = compared(json.loads(STORED.read_text()), now)
    print("\n".join(map(str, findings)))
    sys.exit(1 if any(finding.is_worse for finding in findings) else 0)


if __name__ == "__main__":
    main()
