#!/usr/bin/env python3
"""Writes reference.json: held-out pinball losses of established libraries on data that reference_test.go makes as well.

    python3 -m venv /tmp/gbm && /tmp/gbm/bin/pip install lightgbm==4.7.0 scikit-learn==1.9.1 numpy==2.4.6
    /tmp/gbm/bin/python predictor/gbm/testdata/reference.py

A data set is a stream of splitmix64 (Steele, Lea & Flood 2014), cut into rows: a uniform number per feature, then twelve
whose sum less six is the noise. The first half of the rows is fitted, the other half held out. "lightgbm" and "sklearn"
have no constraints (LightGBM refuses them for quantiles); "sklearn_monotone" has those of the data set, where it has any.
"label_means" of the two halves show that the data is the same.
"""
import json
import pathlib

import lightgbm
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor

ROWS = 4000  # of each half
ROUNDS, LEAVES, MIN_ROWS, RATE = 100, 15, 20, 0.1
LEVELS = [0.5, 0.9, 0.95]


def uniforms(seed, count):
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.uint64(0x9E3779B97F4A7C15) * np.arange(1, count + 1, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def spread(x, noise):
    return 8 * (x[:, 0] - 0.5) ** 2 + (0.1 + x[:, 0] ** 2) * noise


def friedman(x, noise):
    return (10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4] + noise)


def latency(x, noise):
    queue, prompt, cap, hit, free = (x[:, i] for i in range(5))
    typical = 0.2 * (1 + 4 * queue) * (1 + 2 * prompt * (1 - 0.8 * hit)) * (1 + cap * cap)
    return typical * np.exp(np.maximum(0, 0.3 - free) * 3) * np.exp(0.3 * (0.5 + queue) * noise)


SETS = [
    ("spread", spread, 2, 11, []),
    ("friedman", friedman, 10, 12, []),
    ("latency", latency, 20, 13, [1, 1, 1, -1, -1] + 15 * [0]),
]


def pinball(level, y, predicted):
    r = y - predicted
    return float(np.mean(np.maximum(level * r, (level - 1) * r)))


def main():
    out = []
    for name, label, features, seed, monotone in SETS:
        u = uniforms(seed, 2 * ROWS * (features + 12)).reshape(2 * ROWS, features + 12)
        noise = np.zeros(2 * ROWS)
        for i in range(12):
            noise = noise + u[:, features + i]
        x = u[:, :features].astype(np.float32).astype(np.float64)
        y = label(x, noise - 6)
        train, held = slice(0, ROWS), slice(ROWS, None)
        for level in LEVELS:
            booster = lightgbm.train(
                dict(objective="quantile", alpha=level, num_leaves=LEAVES, learning_rate=RATE, min_data_in_leaf=MIN_ROWS,
                     max_bin=255, deterministic=True, force_row_wise=True, num_threads=1, seed=1, verbose=-1),
                lightgbm.Dataset(x[train], y[train]), num_boost_round=ROUNDS)

            def sklearn(constraints):
                model = HistGradientBoostingRegressor(
                    loss="quantile", quantile=level, max_iter=ROUNDS, max_leaf_nodes=LEAVES, min_samples_leaf=MIN_ROWS,
                    learning_rate=RATE, max_bins=255, early_stopping=False, random_state=1, monotonic_cst=constraints)
                return pinball(level, y[held], model.fit(x[train], y[train]).predict(x[held]))

            row = dict(data=name, features=features, seed=seed, rows=ROWS, rounds=ROUNDS, leaves=LEAVES, min_rows=MIN_ROWS,
                       learning_rate=RATE, label_means=[float(np.mean(y[train])), float(np.mean(y[held]))], level=level,
                       lightgbm=pinball(level, y[held], booster.predict(x[held])),
                       sklearn=sklearn(None))
            if monotone:
                row |= dict(monotone=monotone, sklearn_monotone=sklearn(monotone))
            out.append(row)
    text = ",\n".join(json.dumps(row) for row in out)
    pathlib.Path(__file__).with_name("reference.json").write_text("[\n" + text + "\n]\n")


if __name__ == "__main__":
    main()
