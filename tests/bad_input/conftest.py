"""One tiny training, made once, that the cases about runs and checkpoints take copies of."""

from __future__ import annotations

import pytest
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from tests.bad_input.harness import slug
from tests.helpers import rayfish


class TextFile(SingleFileSnapshotExtension):
    """One readable file per case."""

    _write_mode = WriteMode.TEXT
    file_extension = "txt"

    @classmethod
    def get_snapshot_name(cls, *, test_location, index=0):
        """The test's name and its case as one plain file name: `the-message-of.typo-in-a-file`."""
        name = super().get_snapshot_name(test_location=test_location, index=index)
        return slug(name.removeprefix("test_").replace("[", ".").rstrip("]"))


@pytest.fixture
def snapshot(snapshot):
    """Snapshots as text files."""
    return snapshot.use_extension(TextFile)


@pytest.fixture(scope="session")
def trained_runs(tmp_path_factory):
    """The `runs/` folder of a finished training of CartPole, one iteration long."""
    folder = tmp_path_factory.mktemp("trained")
    rayfish(
        "train", "cartpole", "--plain", "training.train_batch_size_per_learner=128",
        "training.minibatch_size=64", "training.num_epochs=1", "training.model.fcnet_hiddens=[4]",
        "stop_conditions.training_iteration=1", cwd=folder,
    )  # fmt: skip
    return folder / "runs"
