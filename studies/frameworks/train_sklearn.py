"""scikit-learn, which knows no epochs: the forest grows tree by tree, and is saved on the way."""

import argparse
import os

import joblib
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split

from sweep.report import Reporter


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_depth", type=int, default=8)
    parser.add_argument("--max_features", type=float, default=0.3)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    r = Reporter()
    x, valid_x, y, valid_y = train_test_split(*load_digits(return_X_y=True), random_state=0)
    forest = RandomForestClassifier(
        n_estimators=0,
        max_depth=args.max_depth,
        max_features=args.max_features,
        random_state=args.seed,
        warm_start=True,
    )
    if r.resume:
        forest = joblib.load(r.resume)
    for done in range(forest.n_estimators // 5, args.rounds):
        forest.n_estimators = 5 * (done + 1)
        forest.fit(x, y)
        r.log(step=done, val_accuracy=forest.score(valid_x, valid_y))
        if r.checkpoint_dir:
            path = os.path.join(r.checkpoint_dir, "forest.joblib")
            joblib.dump(forest, path + ".tmp")
            os.replace(path + ".tmp", path)
        if r.should_stop():
            break
    else:
        r.done()


if __name__ == "__main__":
    main()
