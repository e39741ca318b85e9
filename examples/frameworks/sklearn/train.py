"""scikit-learn with `partial_fit`: the estimator keeps its own random state, so a resumed run prints the same losses."""

from sklearn.datasets import load_digits
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

from trainmaster.sdk.sklearn import Saver

EPOCHS = 60


def main() -> None:
    """Digits with a small neural network, one pass over the data per step."""
    digits = load_digits()
    train, test, labels, wanted = train_test_split(digits.data / 16, digits.target, random_state=7)
    saver = Saver(MLPClassifier((16,), random_state=7, batch_size=64), every=10)
    for epoch in range(saver.restore() + 1, EPOCHS + 1):
        model = saver.estimator.partial_fit(train, labels, classes=range(10))
        loss = log_loss(wanted, model.predict_proba(test), labels=range(10))
        if saver.after_step(epoch, loss=loss, accuracy=model.score(test, wanted)):
            return


if __name__ == "__main__":
    main()
