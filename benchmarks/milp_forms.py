"""milp in lattice form against the paper's Soft form, on the bundled network, in one run.

    python benchmarks/milp_forms.py [--images 10] [--delta 0.5] [--seconds 60] [--network sparse]

Runner-up class, feasibility mode.  A time-out counts as the limit; the last line gives the ratio of
the geometric means.
"""

from __future__ import annotations

import argparse
import math
import time

import bnncert
from bnncert.model.loading import load_demo_images, load_demo_network


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--delta", type=float, default=0.5)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--network", choices=["sparse", "dense"], default="sparse")
    arguments = parser.parse_args()
    network = load_demo_network(arguments.network)
    data = load_demo_images()
    logs: dict[str, list[float]] = {"lattice": [], "soft": []}
    decided = {"lattice": 0, "soft": 0}
    for i in range(arguments.images):
        region = bnncert.Ball("linf", data.point(i), arguments.delta / 127.5, -1.0, 1.0)
        line = f"image {i:3d}"
        answers = {}
        for form in ("lattice", "soft"):
            started = time.monotonic()
            result = bnncert.verify(
                network,
                region,
                int(data.labels[i]),
                rivals="runner-up",
                method="milp",
                timeout=arguments.seconds,
                options=bnncert.Options(form=form),  # type: ignore[arg-type]
            )
            elapsed = min(time.monotonic() - started, arguments.seconds)
            logs[form].append(math.log(max(elapsed, 1e-3)))
            answers[form] = result.status
            decided[form] += result.status in ("robust", "not_robust")
            line += f"   {form}: {result.status:10s} {elapsed:6.2f} s"
        print(line, flush=True)
        verdicts = {a for a in answers.values() if a in ("robust", "not_robust")}
        if len(verdicts) > 1:
            raise SystemExit(f"image {i}: the two forms disagree: {answers}")
    means = {form: math.exp(sum(log) / len(log)) for form, log in logs.items()}
    print(
        f"delta {arguments.delta:g}, {arguments.network} network: lattice decides "
        f"{decided['lattice']}, soft {decided['soft']} of {arguments.images}; geometric means "
        f"{means['lattice']:.2f} s and {means['soft']:.2f} s, ratio "
        f"{means['soft'] / means['lattice']:.1f}"
    )


if __name__ == "__main__":
    main()
