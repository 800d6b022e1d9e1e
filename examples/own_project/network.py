"""A model of your own: any torch module that maps observations to (action logits, value)."""

from torch import nn


class TwoHeads(nn.Module):
    """A shared trunk with a head for the policy and one for the value.

    :param num_outputs: how many numbers describe the action distribution (Rayfish fills it in)
    :param width: from `training.model.custom_model_config`
    """

    def __init__(self, obs_space, num_outputs, width=64):
        super().__init__()
        self.trunk = nn.Sequential(
            nn.Linear(obs_space.shape[0], width), nn.Tanh(), nn.Linear(width, width), nn.Tanh()
        )
        self.policy = nn.Linear(width, num_outputs)
        self.value = nn.Linear(width, 1)

    def forward(self, obs):
        features = self.trunk(obs)
        return self.policy(features), self.value(features)
