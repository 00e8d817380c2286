"""SecureKMeans beside scikit-learn's KMeans on the wine data: the same rows, the same scale, no pooling.

pip install 'secfc-kmeans[sklearn]'
python examples/estimator.py
"""

from __future__ import annotations

from sklearn.cluster import KMeans
from sklearn.datasets import load_wine
from sklearn.metrics import adjusted_rand_score
from sklearn.preprocessing import StandardScaler

from secfc import SecureKMeans


def main() -> None:
    rows, kinds = load_wine(return_X_y=True)
    rows = StandardScaler().fit_transform(rows)
    secure = SecureKMeans(n_clusters=3, n_clients=5, privacy=1, n_init=4, random_state=0).fit(rows)
    plain = KMeans(n_clusters=3, n_init=4, random_state=0).fit(rows)
    for name, model in (("SecureKMeans", secure), ("KMeans", plain)):
        agreement = adjusted_rand_score(kinds, model.labels_)
        print(f"{name:13} inertia {model.inertia_:8.2f}   adjusted Rand index {agreement:.3f}")
    print("a new bottle belongs to cluster", secure.predict(rows[:1])[0])


if __name__ == "__main__":
    main()
