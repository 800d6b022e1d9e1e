"""The batched path: many environments stepped as one, learnt from as a few large arrays.

Two layers. The loop (`rollout`, `sampler`, `gae`, `distributions`, `ppo`, `fused`, `replay`, ...) is
torch and NumPy alone: it imports no Ray and runs as it is on a bare GPU machine. The glue (`runner`,
`learner`, `algorithms`, `eligibility`) hands it to RLlib as an env runner, a learner and a training step.
"""
