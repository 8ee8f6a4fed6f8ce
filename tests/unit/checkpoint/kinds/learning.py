"""Models of scikit-learn and figures of matplotlib."""

from __future__ import annotations

from tests.unit.checkpoint.kinds.kind import Kinds

NEEDS = ("numpy", "sklearn", "matplotlib")
KINDS: Kinds = {
    "trained model": (
        "import numpy as np\nfrom sklearn.linear_model import LogisticRegression, SGDClassifier\n"
        "X = np.random.default_rng(0).normal(size=(200, 3)); y = (X[:, 0] > 0).astype(int)\n"
        "clf = LogisticRegression().fit(X, y); said = clf.predict_proba(X)",
        "assert np.abs(clf.predict_proba(X) - said).max() < 1e-12",
    ),
    "trees, and a model in the middle of its training": (
        "from sklearn.ensemble import RandomForestClassifier\n"
        "forest = RandomForestClassifier(5, random_state=0).fit(X, y); votes = forest.predict_proba(X)\n"
        "sgd = SGDClassifier(random_state=0).partial_fit(X, y, classes=[0, 1])\n"
        "import copy; ahead = copy.deepcopy(sgd).partial_fit(X, y).coef_",
        "assert (forest.predict_proba(X) == votes).all() and np.abs(sgd.partial_fit(X, y).coef_ - ahead).max() < 1e-12",
    ),
    "pipeline with a transformer of the notebook": (
        "from sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import StandardScaler, FunctionTransformer\n"
        "from sklearn.base import BaseEstimator, TransformerMixin\n"
        "class Twice(BaseEstimator, TransformerMixin):\n  def fit(self, X, y=None): return self\n  def transform(self, X): return 2 * X\n"
        "last = LogisticRegression(); pipe = make_pipeline(StandardScaler(), Twice(), FunctionTransformer(lambda v: v + 1), last).fit(X, y); piped = pipe.predict_proba(X)",
        "assert np.abs(pipe.predict_proba(X) - piped).max() < 1e-12 and pipe[-1] is last and isinstance(pipe[1], Twice)",
    ),
    "figure with axes and lines": (
        "import matplotlib; matplotlib.use('agg')\nimport matplotlib.pyplot as plt\n"
        "fig, ax = plt.subplots(); (line,) = ax.plot([1, 2, 3], label='l'); ax.legend(); ax.set_title('t')",
        "import io; fig.savefig(io.BytesIO()); assert ax.figure is fig and line in ax.lines and ax.get_title() == 't'; line.set_ydata([3, 2, 1])",
    ),
    "figure with an image and a colour bar": (
        "fig2, (b1, b2) = plt.subplots(1, 2); im = b1.imshow(np.eye(50)); cb = fig2.colorbar(im, ax=b2); cmap = plt.get_cmap('viridis')",
        "fig2.savefig(io.BytesIO()); assert im in b1.images and cmap(0.5) == plt.get_cmap('viridis')(0.5)",
    ),
}
