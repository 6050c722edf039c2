"""What every task is."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.engine.tasks.registry import TASKS


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.__name__)
def test_a_task_is_frozen_and_can_be_run(task):
    assert dataclasses.is_dataclass(task)
    assert task.__dataclass_params__.frozen
    assert hasattr(task, "run") or hasattr(task, "finish")
