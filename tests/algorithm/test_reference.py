"""The reference page cannot drift from what is checked."""

from __future__ import annotations

from pathlib import Path

from rayfish.algorithm import reference
from rayfish.experiment.sections import ALGORITHMS, SECTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"


def test_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == reference.page(), (
        "run python -m rayfish.algorithm.reference > docs/reference.md"
    )


def test_every_own_key_is_documented_with_a_sentence():
    for name, section in SECTIONS.items():
        assert section.doc.endswith("."), name
        for key, field in section.own.items():
            assert len(field.doc) > 8 and field.doc.endswith("."), f"{name}.{key}"


def test_dead_and_old_keys_are_not_offered():
    assert "render_env" not in {row.key for row in reference.rows("environment")}
    assert "train_batch_size" not in {row.key for row in reference.rows("training", "PPO")}
    assert "remote_worker_envs" not in {row.key for row in reference.rows("rollouts")}


def test_training_without_algorithm_shows_what_all_share():
    shared = {row.key for row in reference.rows("training")}
    for algo in ALGORITHMS:
        assert shared <= {row.key for row in reference.rows("training", algo)}
        assert not shared & {row.key for row in reference.special_rows(algo)}
    assert "clip_param" in {row.key for row in reference.all_rows("training")}
