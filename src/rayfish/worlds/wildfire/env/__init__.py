"""Agents in a fire: actions, observations, rewards, Gymnasium and PettingZoo environments, baselines."""
