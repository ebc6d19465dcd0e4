"""Stable-Baselines3's PPO learns to price. `python -m tests.integrations` installs it where it can be had."""

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FlattenObservation, NormalizeObservation

import evalkit.integrations.gym

WHY = "Stable-Baselines3 is not installed here: `python -m tests.integrations gym` installs it where it can be had"
stable_baselines3 = pytest.importorskip("stable_baselines3", reason=WHY)


def test_ppo_earns_more_than_before() -> None:
    env = gymnasium.make(
        f"{evalkit.integrations.gym.__name__}:evalkit/Pricing-v1", reward="dense", instances=["seed-3"], periods=20
    )
    wrapped: gymnasium.Env[np.ndarray, np.ndarray] = NormalizeObservation(FlattenObservation(env))
    # It begins near the scale of prices; explored far from there, losses teach it to sell nothing.
    narrow = {"log_std_init": -1.5}
    model = stable_baselines3.PPO("MlpPolicy", wrapped, seed=3, n_steps=200, batch_size=100, policy_kwargs=narrow)

    def earned() -> float:
        observation, _ = wrapped.reset(seed=3)
        total, ended = 0.0, False
        while not ended:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, ended, _, _ = wrapped.step(action)
            total += float(reward)
        return total

    before = earned()
    model.learn(4000)
    assert earned() > before + 0.1
